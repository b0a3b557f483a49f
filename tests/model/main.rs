//! The model ring: random commands and faults against the memory ledger, through the view and the use cases.
//! After every step the invariants of the contract are checked.

mod freshness;
mod random;
mod support;
mod writes;
