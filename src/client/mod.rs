//! How others use it.
mod answer;
pub mod check;
mod convert;
mod events;
mod guard;
mod resolver;
mod retry;

pub use answer::{Ask, Condition, Discovery, Error, Refusal, Resolved, Revision};
pub use events::Observed;
pub use guard::{
    Cards, Continue, Copy, Counts, Error as GuardError, Event, Gone, Guard, Held, Intent, Negotiated,
    NoReports, Report, Reported, Reports, Revalidate, Settings as GuardSettings, Stale,
};
pub use resolver::{Resolver, Settings};
pub use retry::Retry;
