//! Waiting for a condition, by asking for it. No test sleeps a guessed while and hopes.
//!
//! [`eventually`] asks until the answer is `Ok`; its failure prints the last answer, which is what somebody
//! needs to see who did not watch. [`throughout`] is its opposite: a condition that must never cease to hold.
//!
//! A probe is written `async || …`. It may look at what surrounds it but not change it: with `AsyncFnMut`,
//! which would permit that, the compiler (1.95) takes no waiting future for `Send`, and tests spawn.

use std::panic::Location;
use std::time::{Duration, Instant};

/// The first pause between two questions, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// Asks `probe` until it answers `Ok`, for at most `within`.
///
/// # Panics
/// When the time is over, at the caller's line, with the last `Err`. A probe that does not answer is cut
/// off at the deadline, and the message says so.
#[track_caller]
pub(crate) fn eventually<T, P: Future<Output = Result<T, String>>>(
    within: Duration,
    probe: impl FnMut() -> P,
) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        match try_eventually(within, probe).await {
            Ok(found) => found,
            Err(last) => panic!("not within {within:?}, asked at {caller}: {last}"),
        }
    }
}

/// As [`eventually`], with the last status as the error instead of a panic.
pub(crate) async fn try_eventually<T, P: Future<Output = Result<T, String>>>(
    within: Duration,
    mut probe: impl FnMut() -> P,
) -> Result<T, String> {
    let deadline = Instant::now() + within;
    let (mut pause, longest) = PAUSES;
    let mut last = String::from("no answer");
    loop {
        let asked = Instant::now();
        match tokio::time::timeout(deadline.saturating_duration_since(asked), probe()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(status)) => last = status,
            Err(_) => {
                return Err(format!("{last}; the question after it was cut off after {:?}", asked.elapsed()));
            }
        }
        if deadline.saturating_duration_since(Instant::now()) < pause {
            return Err(last);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(longest);
    }
}

/// Asks `probe` again and again for `during`, and fails at the first `Err`. Returns how often it asked.
///
/// # Panics
/// At the caller's line, with the status that broke the rule and how long it had held.
#[track_caller]
pub(crate) fn throughout<P: Future<Output = Result<(), String>>>(
    during: Duration,
    mut probe: impl FnMut() -> P,
) -> impl Future<Output = u64> {
    let caller = Location::caller();
    async move {
        let begin = Instant::now();
        let mut asked = 0;
        while begin.elapsed() < during {
            if let Err(status) = probe().await {
                panic!("held for {:?} only, asked at {caller}: {status}", begin.elapsed());
            }
            asked += 1;
            tokio::time::sleep(PAUSES.0).await;
        }
        asked
    }
}
