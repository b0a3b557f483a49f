//! cardfence: a registry of A2A Agent Cards whose answers are fenced, dated and proven, or refused.
//!
//! Every accepted card is an immutable revision in one hash-chained ledger. Nodes fold the ledger into a view
//! in memory and resolve peers from it through *fences*: conditions that are proven, or the resolve is refused.
//! Every answer says how old it can be, at most, and how that is known.
//!
//! # The way of a resolve
//!
//! [`server`] hands a request to a wire ([`api`]), which translates it for the use case in [`registry`]. That
//! loads what the [`view`] serves (one pointer: a state at one position, and the proof of its age), holds the
//! [`fence`] against the [`card`] and the standing of the view, and answers; or it asks the view for a newer
//! proof within the caller's wait, judges again, and refuses with what was wanted and found.
//!
//! # The way of a register
//!
//! The [`card`] is checked and digested, the change against the card in the view is computed, and the write is
//! handed to the [`ledger`]'s writer. That judges a batch of writes in one transaction under the ledger's lock
//! and appends what was accepted; the node's view folds the new entries at once, other nodes' views when they
//! next ask.
//!
//! # What holds
//!
//! - No answer is called fresh because nothing said that it was stale: a view that was not proven is of
//!   *unknown* age, and what cannot be verified counts as failed.
//! - No two machines' clocks are compared. Ages are differences of one machine's clock ([`clock`]).
//! - Before a resolve is refused by content, the view is proven as of the request's arrival.
//! - A resolve from the view takes no lock, sends no query, and copies no card before the wire's encoder.
//! - A card's bytes are never written again: they are stored and served as they were received.
//! - Nothing of one database connection is assumed on the next one.
//! - `card`, `fence` and `view::state` are pure: no clock, no IO, no randomness.
//! - Every task is owned by what started it, every queue is bounded, every wait has a deadline.
//!
//! # Where things are, in reading order

// What things are called, and the clock that ages are measured with.
pub mod clock;
pub mod terms;

// What a card says, and what a caller may demand of it.
pub mod card;
pub mod fence;

// What is remembered, and what is served of it.
#[cfg(feature = "server")]
pub mod ledger;
#[cfg(feature = "server")]
pub mod upstream;
#[cfg(feature = "server")]
pub mod view;

// What may be done.
#[cfg(feature = "server")]
pub mod registry;

// How it is spoken.
#[cfg(feature = "server")]
pub mod api;
#[cfg(any(feature = "server", feature = "client"))]
pub mod proto;
#[cfg(feature = "server")]
pub mod wire;

// How others use it.
#[cfg(feature = "client")]
pub mod client;

// What runs it.
#[cfg(feature = "server")]
pub mod config;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod telemetry;

// How it is told what to do.
#[cfg(feature = "server")]
pub mod cli;
