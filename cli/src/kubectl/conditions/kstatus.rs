//! The status of an object by the rules of kstatus (sigs.k8s.io/cli-utils), whose words kubectl-tree shows too.

use serde_json::Value;

/// Time within which a pod may stay unscheduled before that is a failure.
const SCHEDULED_WITHIN_S: i64 = 15;
/// The deadline of a deployment that has none.
const NO_DEADLINE: i64 = i32::MAX as i64;

/// Conditions that say why an object is not current, the most telling first, and whether they hold then.
const TELLING: [(&str, bool); 11] = [
    ("Stalled", true),
    ("Failed", true),
    ("ReplicaFailure", true),
    ("Progressing", false),
    ("NamesAccepted", false),
    ("PodScheduled", false),
    ("Ready", false),
    ("Established", false),
    ("Reconciling", true),
    ("Available", false),
    ("Progressing", true),
];

/// The word for the status of an object of this group and resource. `age` is in seconds.
pub(super) fn status(group: &str, resource: &str, object: &Value, age: Option<i64>) -> &'static str {
    Object { object, age }.status(group, resource).unwrap_or(InProgress).word()
}

/// The same, and why the object is not current; empty if it does not say why. A deletion is explained elsewhere.
pub(super) fn explained(group: &str, resource: &str, object: &Value, age: Option<i64>) -> (&'static str, String) {
    let object = Object { object, age };
    let status = object.status(group, resource).unwrap_or(InProgress);
    let is_open = matches!(status, InProgress | Failed);
    (status.word(), object.why().filter(|_| is_open).unwrap_or_default())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Current,
    InProgress,
    Failed,
    Terminating,
    Unknown,
}

use Status::{Current, Failed, InProgress, Terminating, Unknown};

impl Status {
    fn word(self) -> &'static str {
        match self {
            Current => "Current",
            InProgress => "InProgress",
            Failed => "Failed",
            Terminating => "Terminating",
            Unknown => "Unknown",
        }
    }
}

struct Object<'o> {
    object: &'o Value,
    age: Option<i64>,
}

/// Each rule returns `None` where kstatus says InProgress.
impl<'o> Object<'o> {
    fn status(&self, group: &str, resource: &str) -> Option<Status> {
        if !self.text("/metadata/deletionTimestamp").is_empty() {
            return Some(Terminating);
        }
        if let (Some(wanted), Some(seen)) = (self.generation(), self.observed())
            && wanted != seen
        {
            return None;
        }
        let standard = self.first(|kind, status, _| match (kind, status) {
            ("Reconciling", "True") => Some(InProgress),
            ("Stalled", "True") => Some(Failed),
            _ => None,
        });
        if standard.is_some() {
            return standard;
        }
        match (group, resource) {
            ("apps" | "extensions", "deployments") => self.deployment(),
            ("apps" | "extensions", "replicasets") => self.replica_set(),
            ("apps" | "extensions", "daemonsets") => self.daemon_set(),
            ("apps", "statefulsets") => self.stateful_set(),
            ("", "pods") => self.pod(),
            ("", "services") => self.service(),
            ("", "persistentvolumeclaims") => (self.text("/status/phase") == "Bound").then_some(Current),
            ("batch", "jobs") => self.job(),
            ("apiextensions.k8s.io", "customresourcedefinitions") => self.definition(),
            ("", "secrets" | "configmaps") | ("batch", "cronjobs") | ("policy", "poddisruptionbudgets") => {
                Some(Current)
            }
            _ => {
                Some(if self.first(|kind, status, _| (kind == "Ready").then_some(status)).unwrap_or("True") == "True" {
                    Current
                } else {
                    InProgress
                })
            }
        }
    }

    /// Why the object is not current: its conditions, or else the numbers that it counts.
    fn why(&self) -> Option<String> {
        if let (Some(wanted), Some(seen)) = (self.generation(), self.observed())
            && wanted != seen
        {
            return Some(format!("its controller has seen generation {seen} of {wanted}"));
        }
        let list = |path: &str| self.object.pointer(path).and_then(Value::as_array).into_iter().flatten();
        let text = |of: &'o Value| of.as_str().filter(|text| !text.is_empty());
        let told = |(kind, holds): &(&str, bool)| {
            let mut all = list("/status/conditions");
            let one = all.find(|one| one["type"] == *kind && (one["status"] == "True") == *holds)?;
            text(&one["message"]).or_else(|| text(&one["reason"]))
        };
        let waits =
            list("/status/containerStatuses").find_map(|container| text(&container["state"]["waiting"]["message"]));
        let words = waits.or_else(|| TELLING.iter().find_map(told)).or_else(|| text(&self.object["status"]["message"]));
        if let Some(words) = words {
            return Some(words.to_owned());
        }
        let (ready, wanted) = match self.count("/status/desiredNumberScheduled") {
            Some(wanted) => (self.status_count("numberReady"), Some(wanted)),
            None => (self.status_count("readyReplicas"), self.count("/spec/replicas")),
        };
        let phase = text(&self.object["status"]["phase"]).map(|phase| format!("its phase is {phase}"));
        wanted.filter(|wanted| ready < *wanted).map(|wanted| format!("{ready} of {wanted} are ready")).or(phase)
    }

    fn deployment(&self) -> Option<Status> {
        let progress = self.first(|kind, status, reason| (kind == "Progressing").then_some((status, reason)));
        if progress.is_some_and(|(_, reason)| reason == "ProgressDeadlineExceeded") {
            return Some(Failed);
        }
        let has_none = self.count("/spec/progressDeadlineSeconds").unwrap_or(NO_DEADLINE) == NO_DEADLINE;
        let (wanted, updated) = (self.wanted(), self.status_count("updatedReplicas"));
        let holds = self.status_count("replicas") == wanted
            && updated >= wanted
            && self.status_count("availableReplicas") >= updated
            && self.status_count("readyReplicas") >= wanted
            && (has_none || progress == Some(("True", "NewReplicaSetAvailable")))
            && self.is("Available", "True");
        holds.then_some(Current)
    }

    fn replica_set(&self) -> Option<Status> {
        let wanted = self.wanted();
        let ready = ["fullyLabeledReplicas", "availableReplicas", "readyReplicas"];
        let holds = !self.is("ReplicaFailure", "True")
            && ready.iter().all(|field| self.status_count(field) >= wanted)
            && self.status_count("replicas") <= wanted;
        holds.then_some(Current)
    }

    fn daemon_set(&self) -> Option<Status> {
        let wanted = self.count("/status/desiredNumberScheduled")?;
        let ready = ["currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady"];
        let is_observed = self.generation().is_some() && self.observed().is_some();
        (is_observed && ready.iter().all(|field| self.status_count(field) >= wanted)).then_some(Current)
    }

    fn stateful_set(&self) -> Option<Status> {
        if self.text("/spec/updateStrategy/type") == "OnDelete" {
            return Some(Current);
        }
        let wanted = self.wanted();
        let is_rolled_out = match self.count("/spec/updateStrategy/rollingUpdate/partition") {
            Some(partition) => self.status_count("updatedReplicas") >= wanted - partition,
            None => {
                self.status_count("currentReplicas") >= wanted
                    && self.text("/status/currentRevision") == self.text("/status/updateRevision")
            }
        };
        let holds =
            self.status_count("replicas") == wanted && self.status_count("readyReplicas") >= wanted && is_rolled_out;
        holds.then_some(Current)
    }

    /// A pod that has ended is current, whether it succeeded or not.
    fn pod(&self) -> Option<Status> {
        let containers = self.object.pointer("/status/containerStatuses").and_then(Value::as_array);
        let loops = |container: &Value| container["state"]["waiting"]["reason"] == "CrashLoopBackOff";
        match self.text("/status/phase") {
            "Succeeded" | "Failed" => Some(Current),
            "Running" if self.is("Ready", "True") => Some(Current),
            "Running" => containers.is_some_and(|all| all.iter().any(loops)).then_some(Failed),
            "Pending" => {
                let refused = self.first(|kind, status, reason| {
                    (kind == "PodScheduled" && status == "False").then_some(reason == "Unschedulable")
                });
                let is_new = self.age.is_some_and(|age| age < SCHEDULED_WITHIN_S);
                (refused == Some(true) && !is_new).then_some(Failed)
            }
            "" => None,
            _ => Some(Unknown),
        }
    }

    fn service(&self) -> Option<Status> {
        let waits = self.text("/spec/type") == "LoadBalancer" && self.text("/spec/clusterIP").is_empty();
        (!waits).then_some(Current)
    }

    fn job(&self) -> Option<Status> {
        let ended = self.first(|kind, status, _| match (kind, status) {
            ("Complete" | "Suspended", "True") => Some(Current),
            ("Failed", "True") => Some(Failed),
            _ => None,
        });
        ended.or((!self.text("/status/startTime").is_empty()).then_some(Current))
    }

    fn definition(&self) -> Option<Status> {
        self.first(|kind, status, reason| match (kind, status) {
            ("NamesAccepted", "False") => Some(Failed),
            ("Established", "False") if reason != "Installing" => Some(Failed),
            ("Established", "True") => Some(Current),
            _ => None,
        })
    }

    /// Returns the result of `of` for the first condition for which `of` returns any: type, status and reason.
    fn first<T>(&self, of: impl Fn(&'o str, &'o str, &'o str) -> Option<T>) -> Option<T> {
        let text = |condition: &'o Value, field: &str| condition[field].as_str().unwrap_or_default();
        let mut all = self.object.pointer("/status/conditions")?.as_array()?.iter();
        all.find_map(|one| of(text(one, "type"), text(one, "status"), text(one, "reason")))
    }

    fn is(&self, kind: &str, status: &str) -> bool {
        self.first(|k, s, _| (k == kind && s == status).then_some(())).is_some()
    }

    fn text(&self, path: &str) -> &'o str {
        self.object.pointer(path).and_then(Value::as_str).unwrap_or_default()
    }

    fn count(&self, path: &str) -> Option<i64> {
        self.object.pointer(path)?.as_i64()
    }

    fn status_count(&self, field: &str) -> i64 {
        self.count(&format!("/status/{field}")).unwrap_or(0)
    }

    /// The controllers take one replica where none is named.
    fn wanted(&self) -> i64 {
        self.count("/spec/replicas").unwrap_or(1)
    }

    fn generation(&self) -> Option<i64> {
        self.count("/metadata/generation")
    }

    fn observed(&self) -> Option<i64> {
        self.count("/status/observedGeneration")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The type, the object with a comma-separated list of conditions `Type=Status:Reason`, and its status.
    const CASES: &str = include_str!("kstatus/cases.txt");

    fn object(text: &str, conditions: &str) -> Value {
        let mut object: Value = serde_json::from_str(text).unwrap();
        for condition in conditions.split_terminator(',') {
            let (kind, rest) = condition.split_once('=').unwrap();
            let (status, reason) = rest.split_once(':').unwrap_or((rest, ""));
            let condition = serde_json::json!({ "type": kind, "status": status, "reason": reason });
            match object["status"]["conditions"].as_array_mut() {
                Some(all) => all.push(condition),
                None => object["status"]["conditions"] = serde_json::json!([condition]),
            }
        }
        object
    }

    #[test]
    fn each_status_is_that_of_kstatus() {
        let lines = CASES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut count = 0;
        for line in lines {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [of, text, conditions, age, expected] = cells.as_slice() else { panic!("{line}") };
            let (resource, group) = of.split_once('.').unwrap_or((of, ""));
            let found = status(group, resource, &object(text, conditions), age.parse().ok());
            assert_eq!(found, *expected, "{line}");
            count += 1;
        }
        assert!(count > 50, "{count}");
    }

    #[test]
    fn an_object_that_is_not_current_says_why() {
        let why = |of: &str, text: &str, conditions: &str| {
            let (resource, group) = of.split_once('.').unwrap_or((of, ""));
            explained(group, resource, &object(text, conditions), Some(60))
        };
        let seen = r#"{"metadata": {"generation": 3}, "status": {"observedGeneration": 2}}"#;
        let loops = r#"{"status": {"phase": "Running", "containerStatuses": [{"state": {"running": {}}},
            {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}}]}}"#;
        let message =
            r#"{"status": {"conditions": [{"type": "Ready", "status": "Unknown", "message": "no heartbeat"}]}}"#;
        let some = r#"{"spec": {"replicas": 3}, "status": {"readyReplicas": 1}}"#;
        let daemons = r#"{"status": {"desiredNumberScheduled": 5, "numberReady": 4}}"#;
        for (of, object, conditions, word, words) in [
            ("widgets.example.com", seen, "Ready=False:Old", "InProgress", "its controller has seen generation 2 of 3"),
            ("widgets.example.com", "{}", "Ready=False:Waits,Stalled=True:Broken", "Failed", "Broken"),
            ("widgets.example.com", "{}", "Ready=True:Fine", "Current", ""),
            ("widgets.example.com", message, "", "InProgress", "no heartbeat"),
            ("pods", loops, "Ready=False:ContainersNotReady", "Failed", "back-off 5m0s"),
            (
                "pods",
                r#"{"status": {"phase": "Pending"}}"#,
                "PodScheduled=False:Unschedulable",
                "Failed",
                "Unschedulable",
            ),
            ("pods", r#"{"status": {"phase": "Pending"}}"#, "", "InProgress", "its phase is Pending"),
            ("pods", r#"{"metadata": {"deletionTimestamp": "x"}}"#, "Ready=False:Ends", "Terminating", ""),
            ("deployments.apps", "{}", "Available=False:Few,Progressing=True:Updates", "InProgress", "Few"),
            ("deployments.apps", "{}", "Available=True,Progressing=True:Updates", "InProgress", "Updates"),
            ("replicasets.apps", some, "", "InProgress", "1 of 3 are ready"),
            ("daemonsets.apps", daemons, "", "InProgress", "4 of 5 are ready"),
            ("replicasets.apps", "{}", "", "InProgress", ""),
        ] {
            assert_eq!(why(of, object, conditions), (word, words.to_owned()), "{of} {object} {conditions}");
        }
    }
}
