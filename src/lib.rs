//! stub

pub mod card;
pub mod terms;
