//! The objects, references and operations of a seed, as data.

use std::fmt;

/// The kinds of the test. They are served during the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    ConfigMap,
    Secret,
    ServiceAccount,
    ReplicationController,
    Pod,
    /// A namespaced custom resource.
    Widget,
    ClusterRole,
    PriorityClass,
    /// A cluster-scoped custom resource.
    Realm,
}

impl Kind {
    pub const ALL: [Kind; 9] = [
        Kind::ConfigMap,
        Kind::Secret,
        Kind::ServiceAccount,
        Kind::ReplicationController,
        Kind::Pod,
        Kind::Widget,
        Kind::ClusterRole,
        Kind::PriorityClass,
        Kind::Realm,
    ];

    /// Returns the name of the kind, its apiVersion and its plural.
    fn row(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Kind::ConfigMap => ("ConfigMap", "v1", "configmaps"),
            Kind::Secret => ("Secret", "v1", "secrets"),
            Kind::ServiceAccount => ("ServiceAccount", "v1", "serviceaccounts"),
            Kind::ReplicationController => ("ReplicationController", "v1", "replicationcontrollers"),
            Kind::Pod => ("Pod", "v1", "pods"),
            Kind::Widget => ("Widget", "example.com/v1", "widgets"),
            Kind::ClusterRole => ("ClusterRole", "rbac.authorization.k8s.io/v1", "clusterroles"),
            Kind::PriorityClass => ("PriorityClass", "scheduling.k8s.io/v1", "priorityclasses"),
            Kind::Realm => ("Realm", "example.com/v1", "realms"),
        }
    }

    pub fn name(self) -> &'static str {
        self.row().0
    }

    pub fn api_version(self) -> &'static str {
        self.row().1
    }

    pub fn plural(self) -> &'static str {
        self.row().2
    }

    pub fn is_namespaced(self) -> bool {
        !matches!(self, Kind::ClusterRole | Kind::PriorityClass | Kind::Realm)
    }

    /// Returns the name of the group. It is empty for the core group.
    pub fn group(self) -> &'static str {
        group_of(self.api_version())
    }

    /// Returns the path of the collection, in one namespace or in all of them.
    pub fn collection(self, namespace: Option<&str>) -> String {
        let (_, api_version, plural) = self.row();
        let root = if api_version.contains('/') { "apis" } else { "api" };
        match namespace {
            Some(namespace) => format!("/{root}/{api_version}/namespaces/{namespace}/{plural}"),
            None => format!("/{root}/{api_version}/{plural}"),
        }
    }
}

/// The index of an object in its program.
pub type Slot = usize;

/// The kind, namespace and name of an object. A user may create the object again after it is gone. It then has another
/// uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub kind: Kind,
    /// The full name of the namespace, or `None` for a cluster-scoped kind.
    pub namespace: Option<String>,
    pub name: String,
}

impl Object {
    pub fn path(&self) -> String {
        format!("{}/{}", self.kind.collection(self.namespace.as_deref()), self.name)
    }
}

impl fmt::Display for Object {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(formatter, "{} {namespace}/{}", self.kind.name(), self.name),
            None => write!(formatter, "{} {}", self.kind.name(), self.name),
        }
    }
}

/// The defect of a reference. A reference to an owner in another namespace needs no flaw, because the slot has the
/// namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    /// The owner's uid under another name.
    WrongName,
    /// The owner's uid under another served kind of the same scope.
    WrongKind(Kind),
    /// The owner's coordinates with a uid that no object has.
    UnknownUid,
    /// A kind that no server knows.
    UnknownKind,
    /// The owner's group, kind, name and uid under a version of the group that is not served.
    UnservedVersion,
}

/// A version that no group serves.
pub(super) const UNSERVED_VERSION: &str = "v9";

/// Returns the group that an `apiVersion` names.
pub(super) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// A reference that a user writes. At the time of the write, it gets the uid of the owner's latest incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    pub owner: Slot,
    pub flaw: Flaw,
    /// The value of `blockOwnerDeletion`. `None` leaves the field out.
    pub blocking: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Background,
    Foreground,
    Orphan,
}

/// An action of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Create {
        slot: Slot,
        references: Vec<Reference>,
        finalizer: bool,
    },
    Delete {
        slot: Slot,
        policy: Option<Policy>,
    },
    AddReference {
        slot: Slot,
        reference: Reference,
    },
    /// Removes every reference with the uid of the owner's latest incarnation.
    RemoveReferences {
        slot: Slot,
        owner: Slot,
    },
    SetBlocking {
        slot: Slot,
        owner: Slot,
        blocking: Option<bool>,
    },
    AddFinalizer {
        slot: Slot,
    },
    RemoveFinalizer {
        slot: Slot,
    },
}

impl Operation {
    pub fn slot(&self) -> Slot {
        match self {
            Operation::Create { slot, .. }
            | Operation::Delete { slot, .. }
            | Operation::AddReference { slot, .. }
            | Operation::RemoveReferences { slot, .. }
            | Operation::SetBlocking { slot, .. }
            | Operation::AddFinalizer { slot }
            | Operation::RemoveFinalizer { slot } => *slot,
        }
    }

    /// Returns the references that this operation writes.
    pub fn references(&self) -> &[Reference] {
        match self {
            Operation::Create { references, .. } => references,
            Operation::AddReference { reference, .. } => std::slice::from_ref(reference),
            Operation::Delete { .. }
            | Operation::RemoveReferences { .. }
            | Operation::SetBlocking { .. }
            | Operation::AddFinalizer { .. }
            | Operation::RemoveFinalizer { .. } => &[],
        }
    }
}

/// An operation, and the time for which the user waits after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub operation: Operation,
    pub pause_ms: u64,
}

/// The program of a seed.
#[derive(Clone, Debug)]
pub struct Program {
    pub seed: u64,
    /// Users build the world before the collector starts.
    pub early: bool,
    pub objects: Vec<Object>,
    pub build: Vec<Step>,
    /// References from an owner back to a direct or indirect dependent. Users write them after the collector has judged
    /// the world without them.
    pub cycles: Vec<Step>,
    /// After each phase, all users wait until all writes have stopped.
    pub phases: Vec<Vec<Step>>,
}

impl Program {
    pub fn namespaces(seed: u64) -> [String; 2] {
        [format!("s{seed}-a"), format!("s{seed}-b")]
    }

    /// Returns all operations, in order.
    pub fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.build.iter().chain(&self.cycles).chain(self.phases.iter().flatten()).map(|step| &step.operation)
    }

    /// Returns every reference that the program writes into a slot.
    pub fn references_of(&self, slot: Slot) -> impl Iterator<Item = &Reference> {
        self.operations().filter(move |operation| operation.slot() == slot).flat_map(Operation::references)
    }

    /// Returns whether the program deletes this object with the policy `Orphan`, stated or by the default of the kind.
    pub fn orphans_dependents_of(&self, owner: Slot) -> bool {
        self.operations().any(|operation| match operation {
            Operation::Delete { slot, policy } if *slot == owner => match policy {
                Some(Policy::Orphan) => true,
                None => self.objects[owner].kind == Kind::ReplicationController,
                Some(Policy::Background | Policy::Foreground) => false,
            },
            Operation::Delete { .. }
            | Operation::Create { .. }
            | Operation::AddReference { .. }
            | Operation::RemoveReferences { .. }
            | Operation::SetBlocking { .. }
            | Operation::AddFinalizer { .. }
            | Operation::RemoveFinalizer { .. } => false,
        })
    }

    /// Returns an operation as text.
    pub fn describe(&self, operation: &Operation) -> String {
        let object = |slot: Slot| format!("[{slot}] {}", self.objects[slot]);
        match operation {
            Operation::Create { slot, references, finalizer } => {
                let owners: Vec<String> =
                    references.iter().map(|reference| self.describe_reference(reference)).collect();
                let finalizer = if *finalizer { ", with a finalizer" } else { "" };
                let owned = if owners.is_empty() { String::new() } else { format!(" owned by {}", owners.join(", ")) };
                format!("create {}{owned}{finalizer}", object(*slot))
            }
            Operation::Delete { slot, policy: Some(policy) } => format!("delete {} ({policy:?})", object(*slot)),
            Operation::Delete { slot, policy: None } => format!("delete {} (no policy)", object(*slot)),
            Operation::AddReference { slot, reference } => {
                format!("add to {} the owner {}", object(*slot), self.describe_reference(reference))
            }
            Operation::RemoveReferences { slot, owner } => format!("take from {} the owner [{owner}]", object(*slot)),
            Operation::SetBlocking { slot, owner, blocking } => {
                format!("set in {} for owner [{owner}] blocking {}", object(*slot), flag(*blocking))
            }
            Operation::AddFinalizer { slot } => format!("add a finalizer to {}", object(*slot)),
            Operation::RemoveFinalizer { slot } => format!("take the finalizer from {}", object(*slot)),
        }
    }

    fn describe_reference(&self, reference: &Reference) -> String {
        let flaw = match reference.flaw {
            Flaw::None => String::new(),
            Flaw::WrongName => " under a wrong name".to_owned(),
            Flaw::WrongKind(kind) => format!(" as if it were a {}", kind.name()),
            Flaw::UnknownUid => " with an unknown uid".to_owned(),
            Flaw::UnknownKind => " under an unknown kind".to_owned(),
            Flaw::UnservedVersion => " under a version that is not served".to_owned(),
        };
        format!("[{}]{flaw} (blocking {})", reference.owner, flag(reference.blocking))
    }
}

impl fmt::Display for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = if self.early { "before" } else { "after" };
        writeln!(formatter, "seed {}; its world is built {when} the collector's start", self.seed)?;
        let lines = |formatter: &mut fmt::Formatter<'_>, steps: &[Step]| -> fmt::Result {
            for step in steps {
                write!(formatter, "    {}", self.describe(&step.operation))?;
                if step.pause_ms > 0 {
                    write!(formatter, "; wait {} ms", step.pause_ms)?;
                }
                writeln!(formatter)?;
            }
            Ok(())
        };
        writeln!(formatter, "  world")?;
        lines(formatter, &self.build)?;
        writeln!(formatter, "  cycles")?;
        lines(formatter, &self.cycles)?;
        for (number, phase) in self.phases.iter().enumerate() {
            writeln!(formatter, "  phase {number}")?;
            lines(formatter, phase)?;
        }
        Ok(())
    }
}

pub(super) fn flag(blocking: Option<bool>) -> &'static str {
    match blocking {
        Some(true) => "true",
        Some(false) => "false",
        None => "unset",
    }
}
