//! The wire as a caller sees it: requests in, answers out, over a ledger in memory.

mod batch;
mod cards;
mod conditional;
mod confirm;
mod history;
mod listing;
mod malformed;
mod openapi;
mod query;
mod replicas;
mod resolve;
mod standing;
mod support;
mod watch;
mod writes;
