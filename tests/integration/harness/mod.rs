//! The tests of what the other tests stand on: a fault that the harness only pretends would prove nothing.

mod clients;
mod postgres;
mod processes;
mod proxy;
