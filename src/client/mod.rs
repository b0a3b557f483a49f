//! How others use it.
mod answer;
pub mod check;
mod convert;
mod resolver;
mod retry;

pub use answer::{Ask, Condition, Discovery, Error, Refusal, Resolved, Revision};
pub use resolver::{Resolver, Settings};
pub use retry::Retry;
