//! Standbys: made, held back, cut off and promoted.
//!
//! Replication is asynchronous unless a test names the standby in the primary's
//! `synchronous_standby_names`. To lose the last entries in a failover: [`Cluster::stop_receiving`], write,
//! kill the primary, [`Cluster::promote`]. Paused *replay* loses nothing, as a promotion replays all that
//! was received.

use super::{Cluster, PATIENCE, SUPERUSER, installed};
use crate::support::eventually::{eventually, try_eventually};
use crate::support::scratch::Scratch;
use crate::support::tail;

impl Cluster {
    /// A hot standby of this primary, streaming, under the application name `name`, ready for queries.
    pub(crate) async fn standby(&self, name: &str) -> Self {
        let scratch = Scratch::new("standby");
        installed::hand_over(scratch.path());
        let data = scratch.path().join("data");
        let primary =
            format!("host=127.0.0.1 port={} user={SUPERUSER} application_name={name}", self.address().port());
        let args =
            ["--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf", "--no-sync", "--pgdata"]
                .into_iter()
                .map(Into::into)
                .chain([data.clone().into_os_string(), "--dbname".into(), primary.into()])
                .collect();
        installed::run("pg_basebackup", args, scratch.path().to_owned()).await;
        let standby = Self::launch(scratch, data).await;
        let streams = format!(
            "SELECT count(*)::text FROM pg_stat_replication
             WHERE application_name = '{name}' AND state = 'streaming'"
        );
        eventually(PATIENCE, async || match self.ask(&streams).await.as_str() {
            "1" => Ok(()),
            _ => Err(format!("{name} does not stream:\n{}", tail(&standby.log(), 20))),
        })
        .await;
        standby
    }

    /// Makes a standby the primary of a history of its own; returns when it accepts writes.
    ///
    /// # Panics
    /// When it does not within the time, with the end of its log.
    pub(crate) async fn promote(&self) {
        self.execute("SELECT pg_promote(wait => false)").await;
        let promoted = try_eventually(PATIENCE, async || {
            let recovering = self.ask("SELECT pg_is_in_recovery()::text").await;
            if recovering == "false" { Ok(()) } else { Err("still in recovery".to_owned()) }
        });
        if let Err(status) = promoted.await {
            panic!("the standby was not promoted: {status}\n{}", tail(&self.log(), 20));
        }
    }

    /// Holds the standby at what it shows now; it goes on receiving.
    pub(crate) async fn pause_replay(&self) {
        self.execute("SELECT pg_wal_replay_pause()").await;
        eventually(PATIENCE, async || {
            match self.ask("SELECT pg_get_wal_replay_pause_state()").await.as_str() {
                "paused" => Ok(()),
                state => Err(format!("replay is `{state}`")),
            }
        })
        .await;
    }

    /// Lets a paused standby catch up.
    pub(crate) async fn resume_replay(&self) {
        self.execute("SELECT pg_wal_replay_resume()").await;
    }

    /// Cuts the standby off from its primary: what the primary writes from now on never reaches it.
    pub(crate) async fn stop_receiving(&self) {
        self.set("primary_conninfo", "").await;
        eventually(PATIENCE, async || {
            match self.ask("SELECT count(*)::text FROM pg_stat_wal_receiver").await.as_str() {
                "0" => Ok(()),
                _ => Err("the receiver still runs".to_owned()),
            }
        })
        .await;
    }

    /// Waits until this standby shows everything that `primary` had written at the call.
    pub(crate) async fn caught_up_with(&self, primary: &Self) {
        let written = primary.ask("SELECT pg_current_wal_lsn()::text").await;
        eventually(PATIENCE, async || {
            let query = format!(
                "SELECT CASE WHEN pg_last_wal_replay_lsn() >= '{written}' THEN 'yes'
                 ELSE pg_last_wal_replay_lsn()::text END"
            );
            let answer = self.ask(&query).await;
            if answer == "yes" { Ok(()) } else { Err(format!("replayed to {answer} of {written}")) }
        })
        .await;
    }
}
