//! The right that each RPC requires.
//!
//! Resources are virtual: no objects of them exist. A test compares this table with `docs/access.md`.

/// The API group of the virtual resources.
pub(in crate::grpc) const GROUP: &str = "ownergraph.dev";

/// A required right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::grpc) struct Right {
    pub(in crate::grpc) verb: &'static str,
    pub(in crate::grpc) resource: &'static str,
}

/// The scope of a required right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::grpc) enum Needs {
    /// No right: probes and reflection.
    Nothing,
    /// The right for all namespaces. The guard checks it before the handler runs.
    Everywhere(Right),
    /// The right for the namespaces of the call. The handler checks it.
    ByNamespace(Right),
    /// The right for the object that the call names. The handler checks it.
    ByName(Right),
}

/// One RPC.
#[derive(Clone, Copy, Debug)]
pub(in crate::grpc) struct Row {
    /// Service and method, as in the path of a call without the leading slash.
    pub(in crate::grpc) rpc: &'static str,
    pub(in crate::grpc) needs: Needs,
}

const fn row(rpc: &'static str, needs: Needs) -> Row {
    Row { rpc, needs }
}

const fn everywhere(verb: &'static str, resource: &'static str) -> Needs {
    Needs::Everywhere(Right { verb, resource })
}

const fn by_namespace(verb: &'static str, resource: &'static str) -> Needs {
    Needs::ByNamespace(Right { verb, resource })
}

/// All served RPCs.
pub(in crate::grpc) const TABLE: &[Row] = &[
    row("ownergraph.work.v1beta1.WorkService/StreamWork", everywhere("lease", "workitems")),
    row("ownergraph.graph.v1beta1.GraphService/GetObject", by_namespace("get", "graphobjects")),
    row("ownergraph.graph.v1beta1.GraphService/BatchGetObjects", by_namespace("get", "graphobjects")),
    row("ownergraph.graph.v1beta1.GraphService/ExplainObject", by_namespace("get", "graphobjects")),
    row("ownergraph.graph.v1beta1.GraphService/ListDependents", by_namespace("list", "graphobjects")),
    row("ownergraph.graph.v1beta1.GraphService/ListOwners", by_namespace("list", "graphobjects")),
    row("ownergraph.graph.v1beta1.GraphService/PreviewDeletion", by_namespace("list", "graphobjects")),
    row("ownergraph.graph.v1beta1.GraphService/FindStuckObjects", by_namespace("list", "graphobjects")),
    row("ownergraph.graph.v1beta1.GraphService/FindCycles", by_namespace("list", "graphobjects")),
    row("ownergraph.graph.v1beta1.GraphService/ExportGraph", by_namespace("list", "graphobjects")),
    row("ownergraph.graph.v1beta1.GraphService/WatchDependents", by_namespace("watch", "graphobjects")),
    row("ownergraph.graph.v1beta1.GraphService/WaitForFreshness", everywhere("list", "collections")),
    row("ownergraph.graph.v1beta1.GraphService/ListCoverage", everywhere("list", "collections")),
    row("ownergraph.decision.v1beta1.DecisionService/GetDecision", by_namespace("get", "decisions")),
    row("ownergraph.decision.v1beta1.DecisionService/ListDecisions", by_namespace("list", "decisions")),
    row("ownergraph.decision.v1beta1.DecisionService/WatchDecisions", by_namespace("watch", "decisions")),
    row("ownergraph.decision.v1beta1.DecisionService/GetParity", everywhere("get", "status")),
    row("ownergraph.decision.v1beta1.DecisionService/ListDisagreements", by_namespace("list", "decisions")),
    row(
        "ownergraph.decision.v1beta1.GateService/StreamVerdicts",
        Needs::ByName(Right { verb: "decide", resource: "gates" }),
    ),
    row("ownergraph.admin.v1beta1.AdminService/GetStatus", everywhere("get", "status")),
    row("ownergraph.admin.v1beta1.AdminService/WatchStatus", everywhere("watch", "status")),
    row("ownergraph.admin.v1beta1.AdminService/ListExecutors", everywhere("list", "executors")),
    row("ownergraph.admin.v1beta1.AdminService/ListPauses", everywhere("list", "pauses")),
    row("ownergraph.admin.v1beta1.AdminService/GetPause", everywhere("get", "pauses")),
    row("ownergraph.admin.v1beta1.AdminService/ListGuards", everywhere("get", "status")),
    row("ownergraph.admin.v1beta1.AdminService/BypassGate", Needs::ByName(Right { verb: "update", resource: "gates" })),
    row("ownergraph.admin.v1beta1.AdminService/PauseCollection", everywhere("update", "pauses")),
    row("ownergraph.admin.v1beta1.AdminService/ResumeCollection", everywhere("update", "pauses")),
    row("ownergraph.admin.v1beta1.AdminService/ExportBundle", everywhere("get", "bundles")),
    row("grpc.health.v1.Health/Check", Needs::Nothing),
    row("grpc.health.v1.Health/Watch", Needs::Nothing),
    row("grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Needs::Nothing),
    row("grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Needs::Nothing),
];

/// The row of a call, by its path.
pub(in crate::grpc) fn of_path(path: &str) -> Option<&'static Row> {
    let rpc = path.strip_prefix('/')?;
    TABLE.iter().find(|row| row.rpc == rpc)
}
