//! Facts in words: durations, ages, digests cut short.

use std::time::Duration;

use crate::terms::ceil_millis;
use crate::wire::Freshness;

/// A duration as people say it, rounded up: `12 ms`, `3.4 s`, `5 min 20 s`, `3 h 5 min`, `2 d 4 h`.
pub(super) fn duration(duration: Duration) -> String {
    let millis = ceil_millis(duration);
    if millis < 1_000 {
        return format!("{millis} ms");
    }
    let tenths = millis.div_ceil(100);
    if tenths < 600 {
        return match tenths % 10 {
            0 => format!("{} s", tenths / 10),
            rest => format!("{}.{rest} s", tenths / 10),
        };
    }
    let two = |count: u64, unit: &str, rest: u64, small: &str| match rest {
        0 => format!("{count} {unit}"),
        rest => format!("{count} {unit} {rest} {small}"),
    };
    let secs = millis.div_ceil(1_000);
    if secs < 3_600 {
        return two(secs / 60, "min", secs % 60, "s");
    }
    let mins = secs.div_ceil(60);
    if mins < 1_440 {
        return two(mins / 60, "h", mins % 60, "min");
    }
    let hours = mins.div_ceil(60);
    two(hours / 24, "d", hours % 24, "h")
}

/// How old an answer can be, at most, and how that is known. `elapsed` is the caller's own round trip, by
/// which the answer may have aged on its way.
pub(super) fn freshness(freshness: &Freshness, elapsed: Duration) -> String {
    let Freshness { position, served_by, staleness_ms, hops, .. } = freshness;
    let Some(millis) = staleness_ms else {
        return format!("of unknown age: node {served_by} at position {position} has proven nothing");
    };
    let bound = Duration::from_millis(*millis).saturating_add(elapsed);
    let hops = match hops {
        0 => String::new(),
        1 => ", 1 node away from the authority".to_owned(),
        hops => format!(", {hops} nodes away from the authority"),
    };
    format!("at most {} old, proven by node {served_by} at position {position}{hops}", duration(bound))
}

/// How an agent's lease stands, where it has one.
pub(super) fn lease(freshness: &Freshness) -> Option<String> {
    let ttl = duration(Duration::from_millis(freshness.lease_ttl_ms?));
    Some(match freshness.unconfirmed {
        Some(true) => format!("UNCONFIRMED: nothing was heard of it for more than {ttl}"),
        _ => format!("{ttl}, held"),
    })
}

/// The beginning of a digest, enough to tell two apart by eye.
pub(super) fn short(digest: &str) -> String {
    let hex = digest.strip_prefix("sha256:").unwrap_or(digest);
    let prefix = if hex.len() == digest.len() { "" } else { "sha256:" };
    match hex.char_indices().nth(12) {
        Some((cut, _)) => format!("{prefix}{}…", &hex[..cut]),
        None => digest.to_owned(),
    }
}

/// A moment without its microseconds.
pub(super) fn moment(rfc3339: &str) -> String {
    match rfc3339.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z").replace('T', " "),
        None => rfc3339.replace('T', " "),
    }
}

/// The first words of a foreign text, on one line.
pub(super) fn excerpt(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let clean: String = words.chars().filter(|c| !c.is_control()).collect();
    match clean.char_indices().nth(160) {
        Some((cut, _)) => format!("{}…", &clean[..cut]),
        None if clean.is_empty() => "nothing".to_owned(),
        None => clean,
    }
}

/// `1 entry`, `2 entries`.
pub(super) fn count(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up() {
        for (micros, text) in [
            (0, "0 ms"),
            (1, "1 ms"),
            (12_000, "12 ms"),
            (999_001, "1 s"),
            (1_000_001, "1.1 s"),
            (3_400_000, "3.4 s"),
            (59_999_000, "1 min"),
            (320_000_000, "5 min 20 s"),
            (11_100_000_000, "3 h 5 min"),
            (187_200_000_000, "2 d 4 h"),
            (172_800_000_000, "2 d"),
        ] {
            assert_eq!(duration(Duration::from_micros(micros)), text, "{micros}");
        }
    }

    fn block(staleness_ms: Option<u64>) -> Freshness {
        Freshness {
            position: "4.9f86d081884c7d65".to_owned(),
            staleness_ms,
            proven_at: None,
            basis: "authority".to_owned(),
            served_by: "a".to_owned(),
            hops: 0,
            origin_confirmed_at: None,
            observed_redeploy_interval_ms: None,
            revalidate_after_ms: None,
            lease_ttl_ms: None,
            unconfirmed: None,
        }
    }

    #[test]
    fn the_round_trip_counts_and_unknown_stays_unknown() {
        let text = freshness(&block(Some(12)), Duration::from_millis(3));
        assert_eq!(text, "at most 15 ms old, proven by node a at position 4.9f86d081884c7d65");
        assert!(freshness(&block(None), Duration::ZERO).starts_with("of unknown age"));
    }

    #[test]
    fn digests_and_texts_are_cut() {
        assert_eq!(short("sha256:0123456789abcdef"), "sha256:0123456789ab…");
        assert_eq!(short("0123456789abcdef"), "0123456789ab…");
        assert_eq!(short("none"), "none");
        assert_eq!(excerpt("<html>\n <b>\u{7}x"), "<html> <b>x");
        assert_eq!(excerpt(""), "nothing");
        assert_eq!(moment("2025-11-30T10:53:20.000001Z"), "2025-11-30 10:53:20Z");
    }
}
