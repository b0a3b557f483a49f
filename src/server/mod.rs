//! The composition root: settings in, a running server out.

mod node;

pub use node::{Node, Parts, Tuning};
