//! stub

pub mod terms;

pub mod card;

pub mod ledger;

pub mod telemetry;

pub mod clock;
