//! When a card in hand may start a task without asking anyone. Pure.
//!
//! A card is published state: keeping it is right only while it is confirmed. A copy is confirmed anew when it is
//! older than the task will take, or was not confirmed within twice the interval at which the agent was seen to be
//! redeployed. Where the namespace promises that a version never gets another content, the first of the two is of no
//! matter: the version was confirmed, and so the content was. And a copy that a held task would not have agreed to
//! is not handed on to the next one unseen.

use std::time::Duration;

/// What decides whether a copy serves.
#[derive(Debug, Clone, Copy, Default)]
pub struct Copy {
    /// Time since it was last proven to be current; `None`: unknown.
    pub age: Option<Duration>,
    /// Twice the observed redeploy interval; `None`: unknown.
    pub revalidate_after: Option<Duration>,
    /// Its namespace declares versions immutable, and the card has a version.
    pub immutable: bool,
    /// A held task depends on what this copy no longer offers.
    pub breaks_held_task: bool,
}

/// Why a copy must be confirmed anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revalidate {
    /// Nothing is proven of its age.
    AgeUnknown,
    /// Nobody knows how often the agent is redeployed.
    IntervalUnknown,
    /// It was not confirmed within twice the redeploy interval.
    Unconfirmed,
    /// It is older than the task will take, or nobody knows how long that is.
    OlderThanTask,
    /// A held task depends on what changed.
    HeldTask,
}

impl Copy {
    /// Why it does not serve a task that takes `expected`; `None`: it serves.
    ///
    /// ```
    /// use std::time::Duration;
    /// use cardfence::client::{Copy, Revalidate};
    ///
    /// let minutes = |n: u64| Some(Duration::from_secs(n * 60));
    /// let copy = Copy { age: minutes(30), revalidate_after: minutes(20), ..Copy::default() };
    /// assert_eq!(copy.must_revalidate(minutes(40)), Some(Revalidate::Unconfirmed));
    /// let copy = Copy { revalidate_after: minutes(60), ..copy };
    /// assert_eq!(copy.must_revalidate(minutes(40)), None);
    /// assert_eq!(copy.must_revalidate(minutes(5)), Some(Revalidate::OlderThanTask));
    /// ```
    pub fn must_revalidate(&self, expected: Option<Duration>) -> Option<Revalidate> {
        let Some(age) = self.age else { return Some(Revalidate::AgeUnknown) };
        let Some(within) = self.revalidate_after else { return Some(Revalidate::IntervalUnknown) };
        if age > within {
            return Some(Revalidate::Unconfirmed);
        }
        if !self.immutable && expected.is_none_or(|expected| age > expected) {
            return Some(Revalidate::OlderThanTask);
        }
        self.breaks_held_task.then_some(Revalidate::HeldTask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(n: u64) -> Option<Duration> {
        Some(Duration::from_secs(n * 60))
    }

    #[test]
    fn a_copy_serves_while_it_is_confirmed_and_younger_than_the_task() {
        let copy = |age, revalidate_after| Copy { age, revalidate_after, ..Copy::default() };
        for (copy, expected, why) in [
            (copy(minutes(1), minutes(10)), minutes(40), None),
            (copy(minutes(10), minutes(10)), minutes(10), None),
            (copy(minutes(11), minutes(10)), minutes(40), Some(Revalidate::Unconfirmed)),
            (copy(minutes(5), minutes(10)), minutes(4), Some(Revalidate::OlderThanTask)),
            (copy(minutes(5), minutes(10)), None, Some(Revalidate::OlderThanTask)),
            (copy(None, minutes(10)), minutes(40), Some(Revalidate::AgeUnknown)),
            (copy(minutes(0), None), minutes(40), Some(Revalidate::IntervalUnknown)),
        ] {
            assert_eq!(copy.must_revalidate(expected), why, "{copy:?} for {expected:?}");
        }
    }

    #[test]
    fn an_immutable_version_serves_for_as_long_as_it_is_confirmed() {
        let copy =
            Copy { age: minutes(9), revalidate_after: minutes(10), immutable: true, ..Copy::default() };
        assert_eq!(copy.must_revalidate(minutes(1)), None);
        assert_eq!(copy.must_revalidate(None), None);
        let unconfirmed = Copy { age: minutes(11), ..copy };
        assert_eq!(unconfirmed.must_revalidate(minutes(40)), Some(Revalidate::Unconfirmed));
        let unknown = Copy { revalidate_after: None, ..copy };
        assert_eq!(unknown.must_revalidate(minutes(40)), Some(Revalidate::IntervalUnknown));
        let held = Copy { breaks_held_task: true, ..copy };
        assert_eq!(held.must_revalidate(minutes(40)), Some(Revalidate::HeldTask));
    }
}
