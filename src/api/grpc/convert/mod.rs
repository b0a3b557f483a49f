//! Between the wire's messages and the registry's types: the one place in this wire that names both.
//!
//! [`request`] reads what callers send and refuses what it cannot read, naming the field, the value and what is
//! allowed. [`answer`] and [`mod@problem`] write what they get. No decision is made here: what a message means is
//! said by `registry`.

mod answer;
mod batch;
mod origins;
mod problem;
mod replicas;
mod replicate;
mod request;
mod watch;

pub(super) use answer::{agents_page, diff, ledger_page, past, resolved, revisions_page, watermark, written};
pub(super) use batch::batch as batch_answer;
pub(super) use origins::{confirmed, items};
pub(super) use problem::{cut, problem};
pub(super) use replicas::{list as replica_list, report};
pub(super) use replicate::{Ask, ask, entries, head, liveness, moved, part};
pub(super) use request::{
    Which, agent, batch, list, millis, page_token, read, register, replicated_wait, resolve, retire,
    rollback, start, which,
};
pub(super) use watch::{event, watch};
