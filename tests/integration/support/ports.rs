//! Ports on 127.0.0.1 that stay ours while their owner is down.
//!
//! A killed cluster must come back under its old address, and a cut proxy too. Port 0 would hand out ports
//! of the range that outgoing connections also draw from, so a client's socket could take the place in
//! between; these lie below that range.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Above the well-known services, below the outgoing range of Linux (32768 unless somebody changed it).
const RANGE: std::ops::Range<u16> = 15_000..32_000;

static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port that nobody listens on now, and that this process gives out only once.
///
/// Another process may still take it: who listens on it must be ready to ask for another.
pub(crate) fn free() -> u16 {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let width = u64::from(RANGE.end - RANGE.start);
    let start = RandomState::new().build_hasher().finish() % width;
    for step in 0..width {
        let offset = u16::try_from((start + step) % width).expect("the range is made of ports");
        let port = RANGE.start + offset;
        if !given.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            given.insert(port);
            return port;
        }
    }
    panic!("no free port on 127.0.0.1 in {RANGE:?}");
}
