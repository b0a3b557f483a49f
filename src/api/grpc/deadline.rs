//! How long a call may take: `grpc-timeout`, read by ourselves.
//!
//! The registry bounds its waiting by it, so that a typed refusal arrives before the caller gives up; what does
//! not wait on the registry (a slow request body, a slow store) is cut off here, shortly before.

use std::time::Duration;

use http::HeaderMap;

use crate::registry::{Refusal, Settings};
use crate::terms::Reason;

const HEADER: &str = "grpc-timeout";
/// The longest wait of a read.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// What a call without a time-out gets beyond the longest that it can be waiting: to arrive, and to be answered.
const GRACE: Duration = Duration::from_secs(5);

/// The caller's time-out; `None` when it names none.
///
/// # Errors
/// `invalid_argument` when it cannot be read: a call that means to be bounded must not run unbounded.
pub(super) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Refusal> {
    let Some(value) = headers.get(HEADER) else { return Ok(None) };
    match value.to_str().ok().and_then(parse) {
        Some(timeout) => Ok(Some(timeout)),
        None => {
            let shown: String = String::from_utf8_lossy(value.as_bytes()).chars().take(40).collect();
            Err(Refusal::invalid(format!(
                "{HEADER}: `{}` is not a time-out: 1 to 8 digits followed by H, M, S, m, u or n",
                shown.escape_debug()
            )))
        }
    }
}

fn parse(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let digits = text.strip_suffix(unit)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        'H' => Some(Duration::from_secs(count * 3_600)),
        'M' => Some(Duration::from_secs(count * 60)),
        'S' => Some(Duration::from_secs(count)),
        'm' => Some(Duration::from_millis(count)),
        'u' => Some(Duration::from_micros(count)),
        'n' => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

/// The time in which a call is answered one way or another, from its arrival.
pub(super) fn allowed(timeout: Option<Duration>, settings: &Settings) -> Duration {
    let most = settings.write_timeout.max(WAIT_MAX) + GRACE;
    // The registry stops waiting at nine tenths; the answer must still travel.
    timeout.map_or(most, |timeout| most.min(timeout.mul_f64(0.95)))
}

/// What a call is told when its time is over.
pub(super) fn over(writes: bool) -> Refusal {
    if writes {
        let detail = "the time of the call is over, and the write may or may not have been done; \
                      send it again only under a request id that it had, else read the current revision first";
        // No pause is named: whether it had a request id is not known here.
        return Refusal::new(Reason::OutcomeUnknown, detail);
    }
    Refusal::new(Reason::DeadlineExceeded, "the time of the call is over")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Duration>, Refusal> {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, text.parse().unwrap());
        timeout(&headers)
    }

    #[test]
    fn timeouts_have_one_grammar() {
        assert_eq!(timeout(&HeaderMap::new()).unwrap(), None);
        for (text, expected) in [
            ("1H", Duration::from_secs(3_600)),
            ("2M", Duration::from_secs(120)),
            ("3S", Duration::from_secs(3)),
            ("250m", Duration::from_millis(250)),
            ("7u", Duration::from_micros(7)),
            ("99999999n", Duration::from_nanos(99_999_999)),
            ("99999999H", Duration::from_secs(99_999_999 * 3_600)),
            ("0n", Duration::ZERO),
        ] {
            assert_eq!(read(text).unwrap(), Some(expected), "{text}");
        }
        for bad in ["", "5", "S", "-1S", "+1S", "1.5S", "1s", "1 S", "1S ", "123456789n", "ü", "1é", "1SS"]
        {
            assert_eq!(read(bad).unwrap_err().reason(), Reason::InvalidArgument, "{bad}");
        }
    }

    #[test]
    fn an_answer_comes_before_the_deadline_and_always_comes() {
        let settings = Settings::default();
        assert_eq!(allowed(Some(Duration::from_secs(1)), &settings), Duration::from_millis(950));
        assert_eq!(allowed(Some(Duration::from_secs(86_400)), &settings), Duration::from_secs(15));
        assert_eq!(allowed(None, &settings), Duration::from_secs(15));
    }
}
