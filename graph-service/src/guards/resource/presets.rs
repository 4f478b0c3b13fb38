//! Presets of protections: marks with which other tools say that an object is to be kept.

use super::values::Most;
use engine::object::GroupResource;
use engine::scope::{Filter, Labelled, Requirement, Test};
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct Presets(Most<Preset, 6>);

#[derive(Clone, Copy, Debug, Deserialize)]
enum Preset {
    Helm,
    ArgoCD,
    OpenKruise,
    Karmada,
    Gardener,
    Crossplane,
}

impl Presets {
    /// One target for each preset.
    pub(super) fn targets(self) -> impl Iterator<Item = Filter> {
        self.0.0.into_iter().map(Preset::target)
    }
}

impl Preset {
    fn target(self) -> Filter {
        use Labelled::{Annotation, Label};
        let words = |words: &[&str]| words.iter().map(|&word| word.into()).collect();
        let mark = |of, key: &str, test| Filter {
            marks: vec![Requirement { of, key: key.into(), test }],
            ..Filter::default()
        };
        match self {
            // helm/helm, pkg/kube/resource_policy.go: the value `keep` is the only one that keeps a resource.
            Preset::Helm => mark(Annotation, "helm.sh/resource-policy", Test::In(words(&["keep"]))),
            // argoproj/argo-cd, docs/user-guide/sync-options.md: options are separated by commas, and spaces do not
            // count.
            Preset::ArgoCD => mark(Annotation, "argocd.argoproj.io/sync-options", Test::Lists("Delete=false".into())),
            // openkruise/kruise-api, policy/v1alpha1/resources_deletion_protection.go. With `Cascading`, OpenKruise
            // refuses the deletion of an object that has others; the protection keeps it in every case.
            Preset::OpenKruise => {
                mark(Label, "policy.kruise.io/delete-protection", Test::In(words(&["Always", "Cascading"])))
            }
            // karmada-io/karmada, DeletionProtectionLabelKey: the value `Always` is the only one that protects.
            Preset::Karmada => {
                mark(Label, "resourcetemplate.karmada.io/deletion-protected", Test::In(words(&["Always"])))
            }
            // gardener/gardener, docs/concepts/apiserver-admission-plugins.md, DeletionConfirmation: these three kinds
            // need the annotation before they are deleted.
            Preset::Gardener => Filter {
                resources: ["projects", "shoots", "shootstates"]
                    .map(|resource| GroupResource { group: "core.gardener.cloud".into(), resource: resource.into() })
                    .to_vec(),
                ..mark(Annotation, "confirmation.gardener.cloud/deletion", Test::NotIn(words(&["true"])))
            },
            // crossplane/crossplane, internal/controller/apiextensions/usage: the controller sets the label on an
            // object that a Usage names, and its webhook looks at the deletion of objects with the label.
            Preset::Crossplane => mark(Label, "crossplane.io/in-use", Test::In(words(&["true"]))),
        }
    }
}
