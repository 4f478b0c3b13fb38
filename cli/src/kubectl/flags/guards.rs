//! The flags of `protect`, `budget`, `approve`, `release` and `gates`.

use super::spans::lifetime;
use super::{Asking, Connection, Output};
use crate::kubectl::selector::{Requirements, requirements};
use clap::ValueEnum;
use engine::object::GroupResource;
use graph_service::options::{dns_name, kind_name};
use serde::Serialize;
use std::time::Duration;

/// Maximum number of deletions that a budget can have.
const OBJECTS_MAX: u64 = 1_000_000_000;

/// The conditions of a scope. An object must meet all of them.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Scope")]
pub(crate) struct ScopeFlags {
    /// Objects of this kind, in kubectl's forms: pods, deploy, deployments.apps; may be repeated.
    #[arg(short, long, value_name = "KIND", value_delimiter = ',', value_parser = kind_name)]
    pub(crate) kind: Vec<GroupResource>,
    /// Objects in this namespace; may be repeated. Also the namespace of --owner.
    #[arg(short, long, value_name = "NAMESPACE", value_delimiter = ',', value_parser = dns_name)]
    pub(crate) namespace: Vec<String>,
    /// Objects with this name; may be repeated.
    #[arg(long = "name", value_name = "NAME", value_delimiter = ',')]
    pub(crate) names: Vec<String>,
    /// Objects with these labels, such as app=web,tier!=cache or 'env in (a,b)'.
    #[arg(short = 'l', long, value_name = "SELECTOR", value_parser = requirements)]
    pub(crate) selector: Option<Requirements>,
    /// Objects in namespaces with these labels.
    #[arg(long, value_name = "SELECTOR", value_parser = requirements)]
    pub(crate) namespace_selector: Option<Requirements>,
    /// This object and all objects below it.
    #[arg(long, value_name = "TYPE/NAME")]
    pub(crate) owner: Option<String>,
}

/// A tool whose marks a protection honours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum Preset {
    /// Annotation helm.sh/resource-policy: keep.
    Helm,
    /// Annotation argocd.argoproj.io/sync-options with Delete=false.
    ArgoCD,
    /// Label policy.kruise.io/delete-protection.
    OpenKruise,
    /// Label resourcetemplate.karmada.io/deletion-protected.
    Karmada,
    /// Projects, shoots and shootstates without annotation confirmation.gardener.cloud/deletion.
    Gardener,
    /// Label crossplane.io/in-use.
    Crossplane,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Protect {
    /// Name of the protection. Default: a new name.
    #[arg(value_name = "NAME", value_parser = dns_name)]
    pub(crate) name: Option<String>,
    /// Objects of the whole cluster that this tool has marked; may be repeated.
    #[arg(
        long,
        value_name = "TOOL",
        value_delimiter = ',',
        value_enum,
        conflicts_with_all = ["kind", "namespace", "names", "selector", "namespace_selector", "owner"]
    )]
    pub(crate) preset: Vec<Preset>,
    /// Reason for the protection. `status`, `why` and the resource show the reason.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Lifetime of the protection, such as 12h or 30d. Default: it does not expire.
    #[arg(long = "for", value_name = "DURATION", value_parser = lifetime)]
    pub(crate) lifetime: Option<Duration>,
    #[command(flatten)]
    pub(crate) scope: ScopeFlags,
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The limit of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Objects(u64),
    Percent(u64),
}

fn limit(text: &str) -> Result<Limit, String> {
    let wanted = "expected a number from 1 to 1000000000, such as 500, or a share of a collection from 1% to 100%";
    let number = |text: &str, max: u64| text.parse().ok().filter(|number| (1..=max).contains(number)).ok_or(wanted);
    Ok(match text.strip_suffix('%') {
        Some(percent) => Limit::Percent(number(percent, 100)?),
        None => Limit::Objects(number(text, OBJECTS_MAX)?),
    })
}

/// The effect if a deletion exceeds a budget. In JSON, the value in the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub(crate) enum OnExceeded {
    /// The deletion waits until the window has moved.
    Hold,
    /// The leader pauses the scope.
    Pause,
    /// The deletion waits until `approve budget/NAME`.
    Approve,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Budget {
    /// Name of the budget.
    #[arg(value_name = "NAME", value_parser = dns_name)]
    pub(crate) name: String,
    /// Maximum number of deletions in each window, such as 500, or a share of each collection, such as 10%.
    #[arg(long, value_name = "N|N%", value_parser = limit)]
    pub(crate) max: Limit,
    /// Length of the window, such as 10m; at most 24h.
    #[arg(long, value_name = "DURATION", value_parser = lifetime)]
    pub(crate) per: Duration,
    /// The effect if a deletion exceeds the budget.
    #[arg(long, value_enum, value_name = "EFFECT")]
    pub(crate) on_exceeded: OnExceeded,
    /// Reason for the budget. `status`, `why` and the resource show it.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Lifetime of the budget, such as 30d. Default: it does not expire.
    #[arg(long = "for", value_name = "DURATION", value_parser = lifetime)]
    pub(crate) lifetime: Option<Duration>,
    #[command(flatten)]
    pub(crate) scope: ScopeFlags,
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Approve {
    /// The root of the cascade as TYPE NAME or TYPE/NAME, or budget/NAME to begin a new window of a budget. Without it,
    /// the command lists the cascades that wait.
    #[arg(num_args = 0..=2, value_name = "ROOT")]
    pub(crate) root: Vec<String>,
    /// The digest of the cascade. Without it, the command shows the cascade and asks for confirmation at the terminal.
    #[arg(long, value_name = "DIGEST", requires = "root")]
    pub(crate) digest: Option<String>,
    /// Time for which the approval is valid. The rest of the cascade then waits again. Default: 1h.
    #[arg(long = "for", value_name = "DURATION", value_parser = lifetime, requires = "root")]
    pub(crate) lifetime: Option<Duration>,
    /// Do not ask for confirmation at a terminal. Without a terminal, --digest is still required.
    #[arg(short, long, requires = "root")]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Release {
    /// The guards: pause/NAME and protection/NAME are deleted, gate/NAME is bypassed, budget/NAME begins a new window.
    #[arg(required = true, value_name = "GUARD")]
    pub(crate) guards: Vec<String>,
    /// Time for which gates are bypassed; more than 10s and at most 24h. A bypass ends 10 s early, because clocks
    /// differ.
    #[arg(long = "for", value_name = "DURATION", value_parser = lifetime)]
    pub(crate) lifetime: Option<Duration>,
    /// Reason for the bypass. `gates` and the resource show it.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Delete pauses and protections without confirmation at a terminal.
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Gates {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_or_a_share() {
        assert_eq!(limit("500"), Ok(Limit::Objects(500)));
        assert_eq!(limit("10%"), Ok(Limit::Percent(10)));
        for wrong in ["", "0", "-1", "%", "0%", "101%", "10 %", "1.5", "ten", "1000000001", "99999999999999999999"] {
            assert!(limit(wrong).is_err(), "{wrong:?}");
        }
    }
}
