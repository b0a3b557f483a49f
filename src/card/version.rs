//! Versions as cards write them: SemVer, read leniently.
//!
//! Owns `v?N[.N[.N]][-pre][+build]` with leading zeros, and its order. A2A gives a card's version no format
//! and no order, so whatever does not parse is incomparable, which a version floor must not take for "new
//! enough". Numbers are compared as digits and cannot overflow.

use std::cmp::Ordering;

/// A version, borrowed from its text.
#[derive(Debug, Clone, Copy)]
pub struct Version<'t> {
    /// Missing numbers are `0`.
    core: [&'t str; 3],
    pre: Option<&'t str>,
}

impl<'t> Version<'t> {
    /// None if `text` is anything else.
    pub fn parse(text: &'t str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let (text, build) = match text.split_once('+') {
            Some((text, build)) => (text, Some(build)),
            None => (text, None),
        };
        let (core, pre) = match text.split_once('-') {
            Some((core, pre)) => (core, Some(pre)),
            None => (text, None),
        };
        let mut numbers = ["0"; 3];
        let mut parts = core.split('.');
        for (place, number) in parts.by_ref().take(3).enumerate() {
            is_number(number).then_some(())?;
            numbers[place] = number;
        }
        let whole = parts.next().is_none() && [pre, build].into_iter().flatten().all(are_identifiers);
        whole.then_some(Self { core: numbers, pre })
    }

    /// SemVer precedence: the build does not count, a pre-release comes before its release.
    fn precedence(&self, other: &Self) -> Ordering {
        let core = self.core.iter().zip(other.core).map(|(a, b)| numeric(a, b));
        core.fold(Ordering::Equal, Ordering::then).then_with(|| match (self.pre, other.pre) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(a), Some(b)) => pre_releases(a, b),
        })
    }
}

impl PartialEq for Version<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version<'_> {}

impl PartialOrd for Version<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.precedence(other)
    }
}

/// The order of two version texts, or none if they are incomparable. Equal texts are equal, whatever they are.
pub fn compare(a: &str, b: &str) -> Option<Ordering> {
    match (Version::parse(a), Version::parse(b)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => (a == b).then_some(Ordering::Equal),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn are_identifiers(text: &str) -> bool {
    let identifier =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    text.split('.').all(identifier)
}

fn numeric(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

fn pre_releases(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(a), Some(b)) => match (is_number(a), is_number(b)) {
                (true, true) => numeric(a, b),
                (true, false) => Ordering::Less,
                (false, true) => Ordering::Greater,
                (false, false) => a.cmp(b),
            },
        };
        if order.is_ne() {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_semver_order() {
        let rising = [
            "0",
            "0.0.1-alpha",
            "0.0.1",
            "0.4.14",
            "v0.4.15",
            "0.5",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1",
            "1.0.1",
            "01.2",
            "1.10",
            "2.0.0",
            "18446744073709551616",
            "18446744073709551617.0.0",
            "99999999999999999999999999999999999999999",
        ];
        for (n, a) in rising.iter().enumerate() {
            for (m, b) in rising.iter().enumerate() {
                assert_eq!(compare(a, b), Some(n.cmp(&m)), "{a} {b}");
            }
        }
    }

    #[test]
    fn what_does_not_count_does_not_count() {
        for (a, b) in
            [("1", "1.0.0"), ("v1.2", "1.2.0"), ("01.002.0003", "1.2.3"), ("1+a", "1+b.c"), ("1-01", "1-1")]
        {
            assert_eq!(compare(a, b), Some(Ordering::Equal), "{a} {b}");
        }
    }

    #[test]
    fn anything_else_is_incomparable_unless_equal() {
        for text in [
            "",
            "v",
            "V1",
            "1.",
            ".1",
            "1.2.3.4",
            "1.x",
            "latest",
            "1.0-",
            "1.0+",
            "1.0-a..b",
            "1.0+a+b",
            " 1",
            "1 ",
            "-1",
            "1.0-ä",
            "2024-01-01T00:00",
            "vv1",
            "٣",
        ] {
            assert!(Version::parse(text).is_none(), "{text}");
            assert_eq!(compare(text, "1.0"), None, "{text}");
            assert_eq!(compare("1.0", text), None, "{text}");
            assert_eq!(compare(text, text), Some(Ordering::Equal), "{text}");
        }
    }
}
