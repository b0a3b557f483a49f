//! How others use it: the registry's promises in the caller's own code.
//!
//! An A2A client fetches a card, picks a skill from it, and delegates. Nothing in the protocol tells it when that card
//! is no longer the agent's: the task is accepted and never run, the webhook never fires, the artifact is of another
//! type. This library is the three pieces that a caller puts around that, each usable without the next:
//!
//! - [`Resolver`] asks a registry, each time, under a [`Fence`](crate::fence::Fence). Its answers say how old they can
//!   be, at most, by the caller's own clock, and two of them never go back in time.
//! - [`Cache`] keeps a watched copy and answers from it in well under a microsecond while its proof is young enough,
//!   asks for a younger one when it is not, and fails closed.
//! - [`Guard`] carries the card that was negotiated with, from the first fence to the last artifact, over either of
//!   them.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use cardfence::client::{Cache, CacheSettings, Guard, GuardError, Intent, Resolver};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let resolver = Resolver::connect("http://127.0.0.1:7878")?;
//! let guard = Guard::new(Cache::start(resolver, CacheSettings::default()));
//! let intent = Intent {
//!     output_modes: vec!["text/markdown".to_owned()],
//!     expected_duration: Some(Duration::from_secs(40 * 60)),
//!     needs_push: true,
//!     ..Intent::skill("summarize-v2")
//! };
//! match guard.start_task(&"acme/summarizer".parse()?, intent).await {
//!     Ok(negotiated) => println!("revision {} it is", negotiated.revision().number),
//!     Err(GuardError::CapabilityMismatch { cards, why }) => println!("{cards}: {why}"),
//!     Err(error) => println!("{error}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//!
//! - What cannot be verified counts as failed: an answer of unknown age satisfies no bound, an answer that cannot be
//!   read is no success, a copy that was not proven says neither "yes" nor "not found".
//! - No two machines' clocks are compared to tell an age. An age counts from the moment before the question was sent.
//! - After evidence against a card no task is started with it again, also while the registry still serves it.
//! - Only reads are sent from here, and drift reports; only what the table of reasons allows is sent again.
//! - The one task is a cache's; it is owned by its last clone, and its end is an event. Every wait has a deadline, and
//!   every queue a bound.
//!
//! # Where things are
//!
//! `answer` holds what is asked and what comes back; `retry`, `resolver` and `convert` (the one place that names the
//! wire's types and ours) ask. `session` decides what a watched `copy` is worth, without IO; `follow` feeds it from
//! the streams that `subscribe` opens, and `cache` answers from it. [`check`] judges answers of agents, and `guard`
//! remembers and acts.

mod answer;
mod cache;
pub mod check;
mod convert;
mod copy;
mod events;
mod follow;
mod guard;
mod resolver;
mod retry;
mod session;
mod subscribe;

pub use answer::{Ask, Condition, Discovery, Error, Refusal, Resolved, Revision};
pub use cache::{Cache, Event as CacheEvent, Selection, Settings as CacheSettings};
pub use events::Observed;
pub use guard::{
    Cards, Continue, Copy, Counts, Error as GuardError, Event, Gone, Guard, Held, Intent, Negotiated,
    NoReports, Report, Reported, Reports, Revalidate, Settings as GuardSettings, Stale,
};
pub use resolver::{Resolver, Settings};
pub use retry::Retry;
