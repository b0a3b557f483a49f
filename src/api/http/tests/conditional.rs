//! Entity tags in requests.

use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::api::http::conditional::{Expected, Known};
use crate::terms::Digest;

fn headers(all: &[(HeaderName, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in all {
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

fn known(lines: &[&str]) -> Result<Known, String> {
    let lines: Vec<_> = lines.iter().map(|line| (IF_NONE_MATCH, *line)).collect();
    Known::of(None, &headers(&lines)).map_err(|refusal| refusal.parts().detail.clone())
}

#[test]
fn what_is_known_is_compared_weakly() {
    let (one, two) = (Digest::of(b"1"), Digest::of(b"2"));
    let (strong, weak) = (format!("\"{}\"", one.tagged()), format!("W/\"{}\"", two.tagged()));
    let list = format!("{strong},{weak}");
    let spaced = format!(" , {strong} ,\t{weak},");
    for (lines, digests) in [
        (vec![strong.as_str()], vec![one]),
        (vec![weak.as_str()], vec![two]),
        (vec![list.as_str()], vec![one, two]),
        (vec![spaced.as_str()], vec![one, two]),
        (vec![strong.as_str(), weak.as_str()], vec![one, two]),
        (vec!["\"other\", \"a,b\""], vec![]),
        (vec!["\"\""], vec![]),
        (vec!["\"sha256:abc\""], vec![]),
    ] {
        assert_eq!(known(&lines), Ok(Known::Digests(digests)), "{lines:?}");
    }
    assert_eq!(known(&[]), Ok(Known::Digests(vec![])));
    assert_eq!(known(&["*"]), Ok(Known::Anything));
    assert!(Known::Anything.holds(&one));
    assert!(!Known::Digests(vec![two]).holds(&one));
}

#[test]
fn malformed_tags_are_refused() {
    let digest = Digest::of(b"1").tagged();
    let unquoted = digest.as_str();
    let glued = format!("\"{digest}\"\"{digest}\"");
    let both = format!("*, \"{digest}\"");
    let lower = format!("w/\"{digest}\"");
    for lines in [
        vec![unquoted],
        vec!["\"open"],
        vec!["W/"],
        vec![""],
        vec![","],
        vec![glued.as_str()],
        vec![both.as_str()],
        vec![lower.as_str()],
        vec!["*", "\"a\""],
        vec!["\"ä\""],
    ] {
        let detail = known(&lines).unwrap_err();
        assert!(detail.starts_with("If-None-Match: "), "{lines:?}: {detail}");
    }
}

#[test]
fn the_query_beats_the_header() {
    let (one, two) = (Digest::of(b"1"), Digest::of(b"2"));
    let tag = format!("\"{}\"", two.tagged());
    let headers = headers(&[(IF_NONE_MATCH, &tag)]);
    assert_eq!(Known::of(Some(&one.tagged()), &headers).unwrap(), Known::Digests(vec![one]));
    let long = "a".repeat(10_000);
    for bad in ["sha256:", "abc", &long] {
        let refusal = Known::of(Some(bad), &headers).unwrap_err();
        assert!(refusal.parts().detail.starts_with("known: "));
        assert!(refusal.parts().detail.len() < 300);
    }
}

#[test]
fn what_is_expected_is_one_strong_tag_or_nothing_there() {
    let digest = Digest::of(b"1");
    let tag = format!("\"{}\"", digest.tagged());
    let weak = format!("W/{tag}");
    let two = format!("{tag}, {tag}");
    let expected = |all: &[(HeaderName, &str)], may_create| {
        Expected::of(&headers(all), may_create)
            .map_err(|refusal| (refusal.reason().slug(), refusal.parts().detail.clone()))
    };
    assert_eq!(expected(&[], true), Ok(Expected::Nothing));
    assert_eq!(expected(&[(IF_MATCH, &tag)], true), Ok(Expected::Digest(digest)));
    assert_eq!(expected(&[(IF_NONE_MATCH, "*")], true), Ok(Expected::Absent));
    let (reason, detail) = expected(&[(IF_MATCH, &weak)], true).unwrap_err();
    assert_eq!(reason, "revision_conflict");
    assert!(detail.contains(&format!("the strong tag is {tag}")), "{detail}");
    for (all, may_create) in [
        (&[(IF_NONE_MATCH, "*")][..], false),
        (&[(IF_NONE_MATCH, tag.as_str())], true),
        (&[(IF_NONE_MATCH, tag.as_str())], false),
        (&[(IF_MATCH, tag.as_str()), (IF_NONE_MATCH, "*")], true),
        (&[(IF_MATCH, "*")], true),
        (&[(IF_MATCH, two.as_str())], true),
        (&[(IF_MATCH, tag.as_str()), (IF_MATCH, tag.as_str())], true),
        (&[(IF_MATCH, "\"abc\"")], true),
        (&[(IF_MATCH, "abc")], true),
        (&[(IF_MATCH, "")], true),
    ] {
        assert_eq!(expected(all, may_create).unwrap_err().0, "invalid_argument", "{all:?}");
    }
}
