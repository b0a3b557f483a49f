//! `Cache-Control` of a request: what a caller says about age in HTTP's own words.
//!
//! `max-age=N` and `max-stale=N` bound the staleness to N seconds and `no-cache` to 0; the strictest counts.
//! `max-stale` without a value lifts the default bound and nothing else: an age that is known passes, an
//! unknown one does not (only `max_staleness=any` accepts that). `only-if-cached` is `wait=0`. Other
//! directives mean nothing here and are passed over, as RFC 9111 has it.

use std::time::Duration;

use http::HeaderMap;
use http::header::CACHE_CONTROL;

use super::query::{shown, whole_number};
use crate::registry::Refusal;
use crate::terms::MaxStaleness;

/// A hundred years: longer than any staleness that is known.
const LIFTED: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// What the directives of one request come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Directives {
    bound: Option<Duration>,
    lifted: bool,
    only_if_cached: bool,
}

impl Directives {
    /// # Errors
    /// `invalid_argument` when a directive that means something here is malformed.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        let mut found = Self::default();
        for value in headers.get_all(CACHE_CONTROL) {
            let text =
                value.to_str().map_err(|_| Refusal::invalid("Cache-Control: only ASCII is allowed"))?;
            for directive in text.split(',') {
                found.take(directive.trim())?;
            }
        }
        Ok(found)
    }

    fn take(&mut self, directive: &str) -> Result<(), Refusal> {
        let (name, value) = match directive.split_once('=') {
            Some((name, value)) => (name.trim_end(), Some(value.trim_start())),
            None => (directive, None),
        };
        match (name.to_ascii_lowercase().as_str(), value) {
            ("max-age" | "max-stale", Some(value)) => self.tighten(seconds(name, value)?),
            ("max-stale", None) => self.lifted = true,
            ("max-age", None) => return Err(Refusal::invalid("Cache-Control: max-age needs a value")),
            ("no-cache", None) => self.tighten(Duration::ZERO),
            ("only-if-cached", None) => self.only_if_cached = true,
            ("no-cache" | "only-if-cached", Some(_)) => {
                let detail = format!("Cache-Control: {} takes no value", shown(name));
                return Err(Refusal::invalid(detail));
            }
            _ => {}
        }
        Ok(())
    }

    fn tighten(&mut self, bound: Duration) {
        self.bound = Some(self.bound.map_or(bound, |before| before.min(bound)));
    }

    /// The staleness that is accepted; `None`: nothing was said of it.
    pub(super) fn max_staleness(&self) -> Option<MaxStaleness> {
        self.bound.or(self.lifted.then_some(LIFTED)).map(MaxStaleness::Within)
    }

    /// How long may be waited; `None`: nothing was said of it.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.only_if_cached.then_some(Duration::ZERO)
    }

    /// Whether anything was said that makes an answer a fenced one.
    pub(super) fn is_fence(&self) -> bool {
        *self != Self::default()
    }
}

fn seconds(name: &str, value: &str) -> Result<Duration, Refusal> {
    let digits = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    // More digits than a number of seconds can have are still a number.
    if digits.len() > 18 && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(LIFTED);
    }
    // RFC 9111 allows leading zeros.
    let trimmed = digits.trim_start_matches('0');
    let number = if trimmed.is_empty() && !digits.is_empty() { "0" } else { trimmed };
    let seconds = whole_number(&format!("Cache-Control: {name}"), number)?;
    Ok(Duration::from_secs(seconds).min(LIFTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directives(lines: &[&str]) -> Result<Directives, String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(CACHE_CONTROL, line.parse().unwrap());
        }
        Directives::of(&headers).map_err(|refusal| refusal.parts().detail.clone())
    }

    #[test]
    fn the_strictest_counts() {
        let within = |secs| Some(MaxStaleness::Within(Duration::from_secs(secs)));
        for (lines, wanted) in [
            (&["max-age=5"][..], within(5)),
            (&["max-stale=7"], within(7)),
            (&["max-age=5, max-stale=7"], within(5)),
            (&["max-stale=7", "max-age=5"], within(5)),
            (&["Max-Age = \"5\""], within(5)),
            (&["max-age=005"], within(5)),
            (&["max-age=00"], within(0)),
            (&["no-cache"], within(0)),
            (&["no-cache, max-age=60"], within(0)),
            (&["max-stale"], Some(MaxStaleness::Within(LIFTED))),
            (&["max-stale, max-age=60"], within(60)),
            (&["max-age=99999999999999999999999"], Some(MaxStaleness::Within(LIFTED))),
            (&["no-store, no-transform, foo=\"a, b\", min-fresh=3"], None),
            (&["only-if-cached"], None),
            (&[""], None),
        ] {
            assert_eq!(directives(lines).unwrap().max_staleness(), wanted, "{lines:?}");
        }
        assert_eq!(directives(&["only-if-cached"]).unwrap().wait(), Some(Duration::ZERO));
        assert!(directives(&["only-if-cached"]).unwrap().is_fence());
        assert!(!directives(&["no-transform"]).unwrap().is_fence());
        assert_eq!(directives(&["max-age=5"]).unwrap().wait(), None);
    }

    #[test]
    fn a_malformed_bound_is_refused_and_not_passed_over() {
        for line in
            ["max-age", "max-age=", "max-age=-1", "max-age=1.5", "max-age=5s", "max-stale=any", "no-cache=x"]
        {
            let detail = directives(&[line]).unwrap_err();
            assert!(detail.starts_with("Cache-Control: "), "{line}: {detail}");
        }
    }
}
