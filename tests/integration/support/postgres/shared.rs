//! The cluster that ordinary tests share, and the database that each of them has to itself.
//!
//! Started at first use, never stopped: it ends with the test program. Its methods that disturb
//! ([`Cluster::freeze`], [`Cluster::kill_9`], [`Cluster::set`] …) are not for it, as other tests run on it.

use std::sync::{Mutex, PoisonError};

use tokio::sync::OnceCell;

use super::{Cluster, Settings};

/// Databases whose tests are over, dropped when the next one is made: a destructor cannot ask a server.
static RETIRED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The cluster that all tests of this program share.
pub(crate) async fn shared() -> &'static Cluster {
    static SHARED: OnceCell<Cluster> = OnceCell::const_new();
    SHARED.get_or_init(|| Cluster::start(Settings::default())).await
}

/// One test's own database in the shared cluster.
#[derive(Debug)]
pub(crate) struct Database {
    name: String,
    url: String,
}

impl Database {
    /// An empty one.
    pub(crate) async fn empty() -> Self {
        let cluster = shared().await;
        drop_retired(cluster).await;
        Self::named(cluster, cluster.create_database().await)
    }

    /// A copy of the template `name`, which the first caller makes by `prepare` (see [`Cluster::template`]).
    pub(crate) async fn prepared(name: &str, prepare: impl AsyncFnOnce(String)) -> Self {
        let cluster = shared().await;
        drop_retired(cluster).await;
        cluster.template(name, prepare).await;
        Self::named(cluster, cluster.create_database_from(name).await)
    }

    fn named(cluster: &Cluster, name: String) -> Self {
        Self { url: cluster.url(&name), name }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The URL, for the product.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let mut retired = RETIRED.lock().unwrap_or_else(PoisonError::into_inner);
        retired.push(std::mem::take(&mut self.name));
    }
}

async fn drop_retired(cluster: &Cluster) {
    let retired = std::mem::take(&mut *RETIRED.lock().unwrap_or_else(PoisonError::into_inner));
    for name in retired {
        cluster.execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
    }
}
