//! What a test cluster is configured with.
//!
//! Durable unless said otherwise: tests kill servers with SIGKILL, and the product warns about a database
//! that does not sync. The database order is that of a language, as in most installations and unlike that of
//! bytes, so that a query which relies on byte order without saying `COLLATE "C"` is found here.

use std::collections::BTreeMap;

use crate::support::scratch::Scratch;

/// PostgreSQL settings by name, written to `postgresql.conf`.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    values: BTreeMap<&'static str, String>,
    on_disk: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let small_and_quiet = [
            // In the data folder, so that it goes with it: killed servers leave the other kinds behind.
            ("dynamic_shared_memory_type", "mmap"),
            ("hot_standby", "on"),
            // Standbys attach at run time, without slots; this is how far behind one may stay.
            ("max_wal_senders", "8"),
            ("wal_keep_size", "256MB"),
            ("wal_level", "replica"),
            ("max_connections", "200"),
            ("max_wal_size", "256MB"),
            ("min_wal_size", "32MB"),
            ("shared_buffers", "32MB"),
            ("listen_addresses", "127.0.0.1"),
            ("unix_socket_directories", ""),
            ("log_line_prefix", "%m [%p] %q%a@%d "),
            ("log_timezone", "UTC"),
            // A frozen or cut standby is noticed, and tries again, in test time.
            ("wal_receiver_timeout", "5s"),
            ("wal_retrieve_retry_interval", "200ms"),
            ("wal_sender_timeout", "5s"),
        ];
        let values = small_and_quiet.map(|(name, value)| (name, value.to_owned())).into();
        Self { values, on_disk: false }
    }
}

impl Settings {
    /// Without syncing to disk: for tests that make many databases and kill nothing.
    pub(crate) fn fast() -> Self {
        Self::default().with("fsync", "off").with("full_page_writes", "off")
    }

    /// Adds or replaces one setting.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.values.insert(name, value.to_owned());
        self
    }

    /// On a disk, where a sync costs what it costs, instead of in memory.
    pub(crate) fn on_disk(self) -> Self {
        Self { on_disk: true, ..self }
    }

    pub(super) fn scratch(&self) -> Scratch {
        if self.on_disk { Scratch::on_disk("postgres") } else { Scratch::new("postgres") }
    }

    /// As lines of a configuration file.
    pub(super) fn to_conf(&self) -> String {
        self.values
            .iter()
            .map(|(name, value)| format!("{name} = '{}'\n", value.replace('\'', "''")))
            .collect()
    }
}
