//! The routes: one file per resource, one table over all.

mod agents;
mod confirm;
mod diff;
mod health;
mod ledger;
mod list;
mod metrics;
mod openapi;
mod replicas;
mod resolve;
mod revisions;
mod watch;
mod watermark;
mod well_known;

use super::route::Route;

static ALL: &[&[Route]] = &[
    agents::ROUTES,
    well_known::ROUTES,
    resolve::ROUTES,
    confirm::ROUTES,
    list::ROUTES,
    revisions::ROUTES,
    diff::ROUTES,
    watch::ROUTES,
    watermark::ROUTES,
    replicas::ROUTES,
    ledger::ROUTES,
    health::ROUTES,
    metrics::ROUTES,
    openapi::ROUTES,
];

/// Every route.
pub(super) fn all() -> impl Iterator<Item = &'static Route> {
    ALL.iter().copied().flatten()
}

/// The routes of one path.
pub(super) fn at(path: &str) -> impl Iterator<Item = &'static Route> {
    all().filter(move |route| route.path == path)
}

/// Every path, once.
pub(super) fn paths() -> Vec<&'static str> {
    let mut paths = Vec::new();
    for route in all() {
        if !paths.contains(&route.path) {
            paths.push(route.path);
        }
    }
    paths
}
