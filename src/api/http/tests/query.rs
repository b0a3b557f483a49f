//! Queries, good and bad, and what they come to.

use std::time::Duration;

use http::HeaderMap;
use proptest::prelude::*;

use crate::api::http::fence::{Demanded, demanded};
use crate::api::http::parameter as p;
use crate::api::http::query::Params;
use crate::api::http::routes;
use crate::registry::Refusal;
use crate::terms::{Digest, MaxStaleness};

const FENCE: &[&[p::Parameter]] = &[p::READ, p::CONDITIONS];

fn fence(query: &str) -> Result<Demanded, Refusal> {
    demanded(&Params::parse(query, FENCE)?, &HeaderMap::new())
}

fn hex() -> String {
    Digest::of(b"").hex()
}

type Holds = fn(&Demanded) -> bool;

#[test]
fn good_queries_are_read() {
    let pin = format!("pin=sha256:{}", hex());
    let pins = format!("pin_skills={0}&pin_negotiation={0}", hex());
    let table: &[(&str, Holds)] = &[
        ("", |d| d.fence.count() == 0 && !d.is_fenced),
        ("&", |d| d.fence.count() == 0),
        ("&&streaming=true&", |d| d.fence.count() == 1),
        ("max_staleness=0", |d| d.fence.max_staleness == Some(MaxStaleness::Within(Duration::ZERO))),
        ("max_staleness=5s", |d| {
            d.fence.max_staleness == Some(MaxStaleness::Within(Duration::from_secs(5))) && d.is_fenced
        }),
        ("max_staleness=250ms", |d| {
            d.fence.max_staleness == Some(MaxStaleness::Within(Duration::from_millis(250)))
        }),
        ("max_staleness=any", |d| d.fence.max_staleness == Some(MaxStaleness::Any)),
        ("at_least=1042.9f86d081884c7d65", |d| d.fence.at_least.is_some_and(|p| p.seq == 1042)),
        ("min_revision=7", |d| d.fence.min_revision.is_some_and(|r| r.number == 7 && r.seen_at.is_none())),
        ("min_revision=7@9.9f86d081884c7d65", |d| {
            d.fence.min_revision.is_some_and(|r| r.seen_at.is_some_and(|p| p.seq == 9))
        }),
        ("min_revision=7%409.9f86d081884c7d65", |d| {
            d.fence.min_revision.is_some_and(|r| r.seen_at.is_some())
        }),
        ("min_version=v1.2", |d| d.fence.min_version.as_deref() == Some("v1.2")),
        ("min_version=1.0+build", |d| d.fence.min_version.as_deref() == Some("1.0+build")),
        ("min_version=1.0%2Bbuild", |d| d.fence.min_version.as_deref() == Some("1.0+build")),
        ("skill=a", |d| d.fence.skills.len() == 1 && d.fence.skills[0].id == "a"),
        ("skill=a+b", |d| d.fence.skills[0].id == "a+b"),
        ("skill=a%20b", |d| d.fence.skills[0].id == "a b"),
        ("skill=a=b", |d| d.fence.skills[0].id == "a=b"),
        ("skill=a%3Bin%3Dx", |d| {
            d.fence.skills[0].id == "a;in=x" && d.fence.skills[0].input_modes.is_empty()
        }),
        ("skill=a%26b", |d| d.fence.skills[0].id == "a&b"),
        ("skill=%C3%A4", |d| d.fence.skills[0].id == "ä"),
        ("skill=%25", |d| d.fence.skills[0].id == "%"),
        ("skill=%00", |d| d.fence.skills[0].id == "\0"),
        ("sk%69ll=a", |d| d.fence.skills[0].id == "a"),
        ("skill=a&skill=b", |d| d.fence.skills.len() == 2),
        ("skill=a;in=text/plain", |d| d.fence.skills[0].input_modes == ["text/plain"]),
        ("skill=a;out=text/plain;out=audio/wav", |d| d.fence.skills[0].output_modes.len() == 2),
        ("skill=a;in=x;out=y;in=z", |d| {
            d.fence.skills[0].input_modes == ["x", "z"] && d.fence.skills[0].output_modes == ["y"]
        }),
        ("skill=a;in=text/plain%3Bcharset%3Dutf-8", |d| {
            d.fence.skills[0].input_modes == ["text/plain;charset=utf-8"]
        }),
        ("skill=a;in=x=y", |d| d.fence.skills[0].input_modes == ["x=y"]),
        ("skill=a;in=image/svg+xml", |d| d.fence.skills[0].input_modes == ["image/svg+xml"]),
        ("skill=a&input_mode=x", |d| d.fence.skills[0].input_modes == ["x"]),
        ("output_mode=y&skill=a;out=x&skill=b", |d| {
            d.fence.skills[0].output_modes == ["x", "y"] && d.fence.skills[1].output_modes == ["y"]
        }),
        ("skill=a&input_mode=x&input_mode=y&output_mode=z", |d| {
            d.fence.skills[0].input_modes == ["x", "y"] && d.fence.skills[0].output_modes == ["z"]
        }),
        ("streaming=true", |d| d.fence.capabilities.streaming),
        ("streaming=false", |d| d.fence.count() == 0 && d.is_fenced),
        ("push_notifications=true", |d| d.fence.capabilities.push_notifications),
        ("extended_card=true", |d| d.fence.capabilities.extended_card),
        ("extension=urn:x&extension=https://e.example/%3Fa%3D1", |d| {
            d.fence.capabilities.extensions == ["urn:x", "https://e.example/?a=1"]
        }),
        (&pin, |d| d.fence.pin.is_some()),
        (&pins, |d| d.fence.pin_skills.is_some() && d.fence.pin_negotiation.is_some()),
        ("max_origin_age=1d", |d| d.fence.max_origin_age == Some(Duration::from_secs(86_400))),
        ("wait=0", |d| d.wait == Some(Duration::ZERO) && d.fence.count() == 0),
        ("wait=10s", |d| d.wait == Some(Duration::from_secs(10))),
    ];
    for (query, holds) in table {
        match fence(query) {
            Ok(demanded) => assert!(holds(&demanded), "{query}: {demanded:?}"),
            Err(refusal) => panic!("{query}: {refusal}"),
        }
    }
}

#[test]
fn bad_queries_are_refused_by_name() {
    let long = format!("min_version={}", "1".repeat(20_000));
    let many = "extension=a&".repeat(200);
    let table: &[(&str, &str)] = &[
        (
            "max_stalenes=5s",
            "`max_stalenes` is not a parameter here: allowed are max_staleness, at_least, wait",
        ),
        ("MAX_STALENESS=5s", "is not a parameter here"),
        ("max-staleness=5s", "is not a parameter here"),
        (" max_staleness=5s", "is not a parameter here"),
        ("wait_replicated=5s", "`wait_replicated` is not a parameter here"),
        ("=5s", "`` is not a parameter here"),
        ("=", "is not a parameter here"),
        ("page_size=5", "`page_size` is not a parameter here"),
        ("at=1.9f86d081884c7d65", "`at` is not a parameter here"),
        ("\u{1b}[31m=1", "`\\u{1b}[31m` is not a parameter here"),
        ("max_staleness=5s&max_staleness=5s", "max_staleness is given more than once"),
        ("max_staleness=5s&max%5Fstaleness=6s", "max_staleness is given more than once"),
        ("streaming=true&streaming=true", "streaming is given more than once"),
        ("max_staleness", "max_staleness must not be empty"),
        ("max_staleness=", "max_staleness must not be empty"),
        ("max_staleness=5", "max_staleness: `5` is not a duration"),
        ("max_staleness=-5s", "max_staleness: `-5s` is not a duration"),
        ("max_staleness=5S", "is not a duration"),
        ("max_staleness=+5s", "is not a duration"),
        ("max_staleness=1.5s", "is not a duration"),
        ("max_staleness=ANY", "or `any`"),
        ("max_staleness=18446744073709551615d", "is not a duration"),
        ("max_staleness=5s;wait=0", "max_staleness: a `;` in the value must be written as %3B"),
        ("at_least=1042", "at_least: `1042` is not a position"),
        ("at_least=01042.9f86d081884c7d65", "is not a position"),
        ("at_least=1042.9F86D081884C7D65", "is not a position"),
        ("at_least=1042.9f86d081884c7d6", "is not a position"),
        ("at_least=-1.9f86d081884c7d65", "is not a position"),
        ("min_revision=0", "min_revision: `0` is not a revision"),
        ("min_revision=07", "is not a revision"),
        ("min_revision=7@", "is not a revision"),
        ("min_revision=latest", "is not a revision"),
        ("min_revision=99999999999999999999", "is not a revision"),
        ("min_version=", "min_version must not be empty"),
        ("skill=", "skill must not be empty"),
        ("skill", "skill must not be empty"),
        ("skill=;in=x", "skill must not be empty"),
        ("skill=a;", "skill: `;` is not known"),
        ("skill=a;in", "skill;in must not be empty"),
        ("skill=a;in=", "skill;in must not be empty"),
        ("skill=a;input=x", "`;input` is not known"),
        ("skill=a;b", "`;b` is not known"),
        ("skill=a;%69n=x", "`;%69n` is not known"),
        ("skill=%", "has a `%` without two hex digits after it"),
        ("skill=%4", "has a `%` without two hex digits after it"),
        ("skill=%zz", "has a `%` without two hex digits after it"),
        ("skill=%u00e4", "has a `%` without two hex digits after it"),
        ("skill=%ff", "is not UTF-8 once decoded"),
        ("skill=a;in=%C3", "is not UTF-8 once decoded"),
        ("%ff=1", "the name of a parameter: `%ff` is not UTF-8"),
        ("input_mode=x", "input_mode needs a skill that it applies to"),
        ("output_mode=x", "output_mode needs a skill that it applies to"),
        ("skill=a&input_mode=", "input_mode must not be empty"),
        ("streaming=1", "streaming: `1` is neither `true` nor `false`"),
        ("streaming=True", "is neither `true` nor `false`"),
        ("streaming=yes", "is neither `true` nor `false`"),
        ("push_notifications", "push_notifications must not be empty"),
        ("extended_card=on", "extended_card: `on` is neither"),
        ("extension=", "extension must not be empty"),
        ("pin=abc", "pin: `abc` is not a SHA-256 digest"),
        ("pin=md5:abc", "pin: `md5:abc` is not a SHA-256 digest"),
        ("pin_skills=xyz", "pin_skills: `xyz` is not"),
        ("pin_negotiation=xyz", "pin_negotiation: `xyz` is not"),
        ("max_origin_age=any", "max_origin_age: `any` is not a duration"),
        ("wait=forever", "wait: `forever` is not a duration"),
        ("wait=1s&wait=2s", "wait is given more than once"),
        (&long, "a query of 20012 bytes is too long"),
        (&many, "too many parameters: at most 128"),
    ];
    for (query, named) in table {
        let refusal = fence(query).expect_err(query);
        assert_eq!(refusal.reason().slug(), "invalid_argument", "{query}");
        let detail = &refusal.parts().detail;
        assert!(detail.contains(named), "{query:.80}: {detail:.300}");
        assert!(detail.len() < 1_000, "{query:.80}: {detail:.300}");
    }
}

#[test]
fn the_query_beats_the_header_in_part() {
    let mut headers = HeaderMap::new();
    headers.insert("cache-control", "no-cache, only-if-cached".parse().unwrap());
    let of = |query: &str| demanded(&Params::parse(query, FENCE).unwrap(), &headers).unwrap();
    let plain = of("");
    assert_eq!(plain.fence.max_staleness, Some(MaxStaleness::Within(Duration::ZERO)));
    assert_eq!(plain.wait, Some(Duration::ZERO));
    assert!(plain.is_fenced);
    let any = of("max_staleness=any");
    assert_eq!((any.fence.max_staleness, any.wait), (Some(MaxStaleness::Any), Some(Duration::ZERO)));
    assert_eq!(of("wait=2s").wait, Some(Duration::from_secs(2)));
}

#[test]
fn no_route_names_a_parameter_twice() {
    for route in routes::all() {
        let mut names: Vec<_> = route.parameters.iter().copied().flatten().map(|p| p.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{route:?}");
    }
}

/// Pieces that queries are made of, so that random ones reach past the first check.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "skill=",
            ";in=",
            ";out=",
            "&",
            "=",
            ";",
            "%",
            "%3B",
            "%ff",
            "%C3%A4",
            "max_staleness=",
            "5s",
            "any",
            "at_least=",
            "1042.9f86d081884c7d65",
            "min_revision=",
            "7@",
            "wait=",
            "pin=",
            "sha256:",
            "streaming=",
            "true",
            "page_size=",
            "999999999999999999999",
            "input_mode=",
            "known=",
            "to=",
            "capability=",
            "+",
        ])
        .prop_map(str::to_owned),
        ".{0,12}",
        "[a-z_%&=;0-9]{0,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn random_queries_never_panic(pieces in prop::collection::vec(piece(), 0..12)) {
        let query = pieces.concat();
        let headers = HeaderMap::new();
        for route in routes::all() {
            let Ok(params) = Params::parse(&query, route.parameters) else { continue };
            let _ = demanded(&params, &headers);
            let _ = crate::api::http::fence::read(&params, &headers);
            for name in [p::PAGE_SIZE, p::TO, p::DRY_RUN] {
                let _ = (params.flag(name), params.count(name), params.size(name));
            }
        }
    }
}
