//! `README.txt`: what each file of a bundle is, which names it has, and what is missing.

use super::DECISIONS_MAX;
use super::archive::RECORDING;
use k8s_openapi::jiff::Timestamp;
use proto::admin::v1beta1::GetStatusResponse;
use proto::admin::v1beta1::export_bundle_response::Recording;
use runtime::version::{COMMIT, VERSION};
use runtime::visible;
use std::fmt::Write as _;

pub(super) const README: &str = "README.txt";
pub(super) const STATUS: &str = "status.yaml";
pub(super) const DECISIONS: &str = "decisions.jsonl";
pub(super) const METRICS: &str = "metrics.txt";
pub(super) const CONFIGURATION: &str = "configuration.yaml";

/// A part that the bundle lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) what: String,
    pub(super) why: String,
}

/// The facts about the bundle.
#[derive(Debug)]
pub(super) struct About {
    taken: Timestamp,
    status: GetStatusResponse,
    pub(super) recording: Option<Recording>,
    pub(super) missing: Vec<Missing>,
}

impl About {
    pub(super) fn new(taken: Timestamp, status: GetStatusResponse) -> About {
        About { taken, status, recording: None, missing: Vec::new() }
    }

    pub(super) fn lacks(&mut self, what: &str, why: String) {
        self.missing.push(Missing { what: what.to_owned(), why });
    }

    /// The text, for a bundle with these files.
    pub(super) fn text(&self, files: &[String]) -> String {
        let mut text = "A bundle of Ownergraph for a bug report.\n\n".to_owned();
        let mut line = |words: &str| {
            let _infallible = writeln!(text, "{}", visible::line(words).trim_end());
        };
        let meta = self.status.meta.clone().unwrap_or_default();
        let GetStatusResponse { version, commit, cluster_uid, .. } = &self.status;
        line(&format!("taken    {:.0}", self.taken));
        line(&format!("client   {VERSION} (commit {COMMIT})"));
        line(&format!("service  {version} (commit {commit}, replica {})", meta.replica));
        line(&format!("cluster  {cluster_uid}"));
        line("");
        line("Files:");
        for (name, what) in self.files() {
            if files.iter().any(|file| file.starts_with(name)) {
                line(&format!("{name:<19} {what}"));
            }
        }
        line("");
        line("Missing:");
        for Missing { what, why } in &self.missing {
            line(&format!("{what:<19} {why}"));
        }
        if self.missing.is_empty() {
            line("nothing");
        }
        line("");
        line("Names:");
        line("The files have no spec, no Secret and no content of objects. They have names:");
        line("status.yaml and decisions.jsonl have names of objects, namespaces, guards, executors and users;");
        line("metrics.txt has names of kinds; configuration.yaml has addresses and names of files.");
        line("Passwords and tokens in flags are replaced by REDACTED. Read the files before you publish them.");
        line(match &self.recording {
            Some(recording) if recording.pseudonyms => {
                "The recording has pseudonyms. To give no names of objects, remove status.yaml and decisions.jsonl: a replay gives the decisions with pseudonyms."
            }
            Some(_) | None => {
                "A recording has the same names; with --record-names hash the service records pseudonyms instead."
            }
        });
        text
    }

    fn files(&self) -> [(&'static str, String); 5] {
        let recording = self.recording.as_ref().map_or("", |recording| recording.name.as_str());
        [
            (STATUS, "the state of the collector: ownergraph status -o yaml".to_owned()),
            (DECISIONS, format!("the last decisions of the log, at most {DECISIONS_MAX}, the oldest first")),
            (METRICS, "the metrics of the replica, as /metrics shows them".to_owned()),
            (CONFIGURATION, "the flags of the service by their source, and the configuration of its engine".to_owned()),
            (RECORDING, format!("the recording {recording}: ownergraph replay BUNDLE makes its decisions once more")),
        ]
    }
}
