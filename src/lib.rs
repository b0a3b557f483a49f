//! stub

pub mod terms;

pub mod clock;

pub mod card;

pub mod fence;

pub mod ledger;

pub mod view;

pub mod registry;

pub mod proto;

pub mod wire;

pub mod api;

pub mod telemetry;

pub mod config;

pub mod server;

pub mod cli;
