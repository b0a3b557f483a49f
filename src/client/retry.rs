//! Whether a failed read is asked again, and after what pause. Pure: the caller brings time and randomness.
//!
//! Only what the table of reasons allows is repeated as it is, and only when the registry said after what time; a
//! registry that was not reached is asked again too, since nothing but reads are sent from here. Pauses are
//! jittered, so that callers who failed together do not come back together, and never reach past the deadline.

use std::time::Duration;

use super::answer::Error;
use crate::terms::{Retry as Class, random_bytes};

/// How often, and how far apart.
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    /// Attempts in all; 1: never again.
    pub attempts: u32,
    /// The pause before the second attempt where the registry names none; doubled each time.
    pub first: Duration,
    /// The longest such pause.
    pub most: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: 4, first: Duration::from_millis(50), most: Duration::from_secs(1) }
    }
}

impl Retry {
    /// The pause before attempt number `attempt + 1`, with `left` until the deadline; `None`: no more. `chance` is
    /// any number, all of them equally likely.
    pub(super) fn pause(&self, attempt: u32, error: &Error, left: Duration, chance: u32) -> Option<Duration> {
        if attempt >= self.attempts {
            return None;
        }
        let pause = match error {
            Error::Refused(refusal) if matches!(refusal.reason.retry(), Class::Yes | Class::Later) => {
                let told = refusal.retry_after?;
                // Not sooner than told, and up to a half later.
                told + fraction(told / 2, chance)
            }
            Error::Unreachable(_) => self.backoff(attempt, chance),
            Error::Refused(_) | Error::Unreliable(_) => return None,
        };
        (pause < left).then_some(pause)
    }

    /// The pause after so many attempts in vain, from half of it up to all.
    pub(super) fn backoff(&self, attempt: u32, chance: u32) -> Duration {
        let doubled = self.first.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(self.most);
        doubled / 2 + fraction(doubled / 2, chance)
    }
}

/// A number for [`Retry::pause`].
pub(super) fn chance() -> u32 {
    u32::from_le_bytes(random_bytes())
}

fn fraction(of: Duration, chance: u32) -> Duration {
    of.mul_f64(f64::from(chance) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Refusal;
    use crate::terms::Reason;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);

    fn refused(reason: Reason, retry_after: Option<Duration>) -> Error {
        Error::from(Refusal { retry_after, ..Refusal::new(reason, "why") })
    }

    #[test]
    fn only_what_the_table_says_is_asked_again() {
        let retry = Retry::default();
        for &reason in Reason::ALL {
            let again = retry.pause(1, &refused(reason, Some(SECOND)), MINUTE, 0).is_some();
            assert_eq!(again, matches!(reason.retry(), Class::Yes | Class::Later), "{reason}");
            assert_eq!(retry.pause(1, &refused(reason, None), MINUTE, 0), None, "{reason}");
        }
        assert_eq!(retry.pause(1, &Error::Unreliable(String::new()), MINUTE, 0), None);
        assert!(retry.pause(1, &Error::Unreachable(String::new()), MINUTE, 0).is_some());
    }

    #[test]
    fn a_pause_is_not_shorter_than_told_and_jittered_up_to_a_half() {
        let told = refused(Reason::TooStale, Some(SECOND));
        let pause = |chance| Retry::default().pause(1, &told, MINUTE, chance).unwrap();
        assert_eq!((pause(0), pause(u32::MAX)), (SECOND, SECOND * 3 / 2));
    }

    #[test]
    fn a_pause_that_reaches_the_deadline_is_not_begun() {
        let told = refused(Reason::Overloaded, Some(SECOND));
        assert_eq!(Retry::default().pause(1, &told, SECOND, 0), None);
        assert_eq!(Retry::default().pause(4, &told, MINUTE, 0), None, "four attempts are enough");
    }

    #[test]
    fn a_registry_out_of_reach_is_asked_ever_less_often() {
        let retry = Retry::default();
        let longest: Vec<Duration> = (1..8).map(|attempt| retry.backoff(attempt, u32::MAX)).collect();
        assert_eq!(longest[0], retry.first);
        assert!(longest.windows(2).all(|pair| pair[0] <= pair[1]) && longest[6] == retry.most);
        assert_eq!(retry.backoff(1, 0), retry.first / 2);
    }
}
