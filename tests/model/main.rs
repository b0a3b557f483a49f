//! The model ring: random commands and faults against the memory ledger, through the view and the use cases.
//! After every step the invariants of the contract are checked.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod doubts;
mod freshness;
mod leases;
mod random;
mod replicas;
mod servers;
mod subscriber;
mod support;
mod watch;
mod watch_random;
mod writes;
