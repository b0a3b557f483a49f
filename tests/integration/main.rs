//! The integration tests: the real binary, real PostgreSQL clusters and real sockets, in one test program.
//!
//! One program, because `support` is then compiled and linked once, and because a process-wide PostgreSQL
//! cluster is started once. A new group of tests is a module here.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bounded;
mod cli;
mod client;
mod crash;
mod edges;
mod failover;
mod grpc;
mod harness;
mod http;
mod ledger_conformance;
mod ledger_faults;
mod ledger_migrations;
mod ledger_pgbouncer;
mod ledger_plans;
mod ledger_sessions;
mod ledger_wire;
mod load;
mod no_lie;
mod origins;
mod replicas;
mod standby;
mod subscribers;
mod support;
mod traces;
mod two_nodes;
mod watch;
