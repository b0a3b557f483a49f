//! Times for people and durations from callers.
//!
//! A [`Timestamp`] is wall clock and is for reading, storing and the age of origins; no staleness is computed
//! from the wall clocks of two machines (see `view::freshness`).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A moment of a wall clock, in microseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Time from `earlier` to this moment; zero when it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The moment so long before this one.
    #[must_use]
    pub fn before(self, earlier: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(earlier.as_micros()).unwrap_or(i64::MAX)))
    }
}

/// RFC 3339 with microseconds and `Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(time) => write!(f, "{time:.6}"),
            Err(_) => f.write_str("unknown"),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a time: RFC 3339 is wanted", .0.escape_debug())]
pub struct InvalidTimestamp(pub String);

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        let time: jiff::Timestamp =
            text.parse().map_err(|_| InvalidTimestamp(text.chars().take(60).collect()))?;
        Ok(Self(time.as_microsecond()))
    }
}

/// A text that is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a duration: `0`, or a whole number followed by ms, s, m, h or d", .0.escape_debug())]
pub struct InvalidDuration(pub String);

/// Reads `0` or `<integer>ms|s|m|h|d`.
///
/// # Errors
/// [`InvalidDuration`] on anything else, an overflow included.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidDuration> {
    let invalid = || InvalidDuration(text.chars().take(40).collect());
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let count: u64 = count.parse().map_err(|_| invalid())?;
    let millis = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    millis.and_then(|unit: u64| count.checked_mul(unit)).map(Duration::from_millis).ok_or_else(invalid)
}

/// Milliseconds, rounded up: times on the wire must not understate.
pub fn ceil_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Seconds, rounded up.
pub fn ceil_secs(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
}

/// The shortest text that [`parse_duration`] reads as this duration, rounded up to milliseconds.
pub fn display_duration(duration: Duration) -> String {
    let millis = ceil_millis(duration);
    match millis {
        0 => "0".to_owned(),
        _ if millis.is_multiple_of(86_400_000) => format!("{}d", millis / 86_400_000),
        _ if millis.is_multiple_of(3_600_000) => format!("{}h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{}m", millis / 60_000),
        _ if millis.is_multiple_of(1_000) => format!("{}s", millis / 1_000),
        _ => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_one_grammar() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("250ms", 250),
            ("5s", 5_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in [
            "",
            "5",
            "-1s",
            "1.5s",
            "s",
            "5 s",
            "5S",
            "99999999999999999999s",
            "18446744073709551615d",
            "any",
        ] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        assert_eq!(display_duration(Duration::from_millis(120_000)), "2m");
        assert_eq!(display_duration(Duration::from_micros(1)), "1ms");
    }

    #[test]
    fn times_on_the_wire_round_up() {
        assert_eq!(ceil_millis(Duration::from_nanos(1)), 1);
        assert_eq!(ceil_millis(Duration::from_millis(7)), 7);
        assert_eq!(ceil_secs(Duration::from_millis(1_001)), 2);
    }

    #[test]
    fn timestamps_are_rfc3339_with_microseconds() {
        let time = Timestamp::from_micros(1_764_500_000_000_001);
        assert_eq!(time.to_string(), "2025-11-30T10:53:20.000001Z");
        assert_eq!(time.to_string().parse(), Ok(time));
        assert_eq!(Timestamp::from_micros(0).to_string(), "1970-01-01T00:00:00.000000Z");
    }
}
