//! The clock that freshness is measured with.
//!
//! Elapsed time is the larger of elapsed boot time (`CLOCK_BOOTTIME`, which counts suspend) and elapsed wall
//! time: a clock that stands still must not make an answer look young, and one that jumps can only make it
//! look old. `std::time::Instant` stops while a machine sleeps, so it is not used for ages. A pause that
//! neither clock sees (a hypervisor that stops and resets both) is the stated limit of bounded reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::terms::Timestamp;

/// A moment by both clocks of one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    boot_nanos: i64,
    wall_nanos: i64,
}

impl Moment {
    /// Whether this moment is not before `other`, by boot time, which only goes forward.
    pub fn at_or_after(&self, other: &Self) -> bool {
        self.boot_nanos >= other.boot_nanos
    }

    /// Time from `earlier` to this moment: the larger of what the two clocks say, never negative.
    pub fn since(&self, earlier: &Self) -> Duration {
        let boot = self.boot_nanos.saturating_sub(earlier.boot_nanos);
        let wall = self.wall_nanos.saturating_sub(earlier.wall_nanos);
        Duration::from_nanos(u64::try_from(boot.max(wall)).unwrap_or(0))
    }

    /// The moment `earlier` than this one by so much.
    #[must_use]
    pub fn before(&self, earlier: Duration) -> Self {
        let nanos = i64::try_from(earlier.as_nanos()).unwrap_or(i64::MAX);
        Self {
            boot_nanos: self.boot_nanos.saturating_sub(nanos),
            wall_nanos: self.wall_nanos.saturating_sub(nanos),
        }
    }

    /// The wall clock at this moment; for people.
    pub fn wall(&self) -> Timestamp {
        Timestamp::from_micros(self.wall_nanos.div_euclid(1_000))
    }
}

/// Where moments come from.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The machine's clocks.
    #[default]
    System,
    /// Hands that a test moves.
    Manual(Arc<Hands>),
}

impl Clock {
    pub fn now(&self) -> Moment {
        match self {
            Self::System => Moment {
                boot_nanos: nanos(rustix::time::ClockId::Boottime),
                wall_nanos: nanos(rustix::time::ClockId::Realtime),
            },
            Self::Manual(hands) => Moment {
                // No two readings are equal, as on a real clock of this resolution.
                boot_nanos: hands.boot_nanos.fetch_add(1, Ordering::AcqRel),
                wall_nanos: hands.wall_nanos.load(Ordering::Acquire),
            },
        }
    }
}

fn nanos(id: rustix::time::ClockId) -> i64 {
    let time = rustix::time::clock_gettime(id);
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

/// The two clocks of a test, moved by hand and apart from each other.
#[derive(Debug, Default)]
pub struct Hands {
    boot_nanos: AtomicI64,
    wall_nanos: AtomicI64,
}

impl Hands {
    /// Boot time as it stands, without the tick that a reading makes: the true time of a test.
    pub fn boot(&self) -> Duration {
        Duration::from_nanos(u64::try_from(self.boot_nanos.load(Ordering::Acquire)).unwrap_or(0))
    }

    /// Moves both clocks.
    pub fn advance(&self, by: Duration) {
        self.advance_boot(by);
        self.step_wall(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX));
    }

    /// Moves boot time alone.
    pub fn advance_boot(&self, by: Duration) {
        self.boot_nanos.fetch_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX), Ordering::AcqRel);
    }

    /// Steps the wall clock alone, back as well.
    pub fn step_wall(&self, nanos: i64) {
        self.wall_nanos.fetch_add(nanos, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_is_the_larger_of_boot_and_wall() {
        let hands = Arc::new(Hands::default());
        let clock = Clock::Manual(Arc::clone(&hands));
        let start = clock.now();
        hands.advance(Duration::from_secs(1));
        let elapsed = |start: &Moment| Duration::from_micros(clock.now().since(start).as_micros() as u64);
        assert_eq!(elapsed(&start), Duration::from_secs(1));
        hands.step_wall(5_000_000_000);
        assert_eq!(elapsed(&start), Duration::from_secs(6), "wall jumped ahead");
        hands.step_wall(-60_000_000_000);
        assert_eq!(elapsed(&start), Duration::from_secs(1), "wall stepped back");
    }

    #[test]
    fn the_system_clock_goes_forward() {
        let clock = Clock::System;
        let first = clock.now();
        let second = clock.now();
        assert!(second.at_or_after(&first));
        assert!(first.wall().as_micros() > 1_700_000_000_000_000);
    }
}
