//! The objects of the demo: which are created, which are deleted, and which must be left in the end.

use super::api::{
    Api, CLAIM, CONFIG_MAP, DATABASE, DEFINITION, DEPLOYMENT, Kind, NAMESPACE, POD, REPLICA_SET, SECRET, Thing,
};
use crate::kubectl::flags::Cascade;
use futures::{StreamExt as _, TryStreamExt as _};
use sandbox::Server;
use sandbox::model::{GroupResource, Object, is_terminating, name, namespace, uid};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The most ordinary reason to stay.
pub(super) const NO_OWNER: &str = "no owner, and not deleted";

const SHOP: &str = "shop";
const BULK: &str = "bulk";
/// Owners of the big cascade.
const BULK_OWNERS: usize = 20;
/// Bystanders of the big cascade, under an owner that lives.
const BULK_KEPT_MAX: usize = 100;
/// Creations in flight at once.
const CREATIONS_MAX: usize = 32;

/// The objects of the demo.
#[derive(Debug)]
pub(super) struct World {
    pub(super) acts: Vec<Act>,
    /// All objects that must be left in the end. No other object may be left.
    pub(super) stays: Vec<Stay>,
    /// Objects that were built.
    pub(super) built: usize,
    /// The uids of the API server's own objects.
    pub(super) before: BTreeSet<String>,
}

/// One deletion, and its expected consequences.
#[derive(Debug)]
pub(super) struct Act {
    /// The name for the summary.
    pub(super) name: &'static str,
    pub(super) title: String,
    pub(super) text: &'static str,
    pub(super) policy: Cascade,
    /// Objects that the demo deletes.
    pub(super) deleted: Vec<Thing>,
    /// Objects that the collector must delete.
    pub(super) goes: Vec<Thing>,
    /// Objects that the collector must remove references from.
    pub(super) changes: Vec<Thing>,
    /// Whether the act is shown as numbers, and not object by object.
    pub(super) big: bool,
}

/// An object that must be left in the end.
#[derive(Debug)]
pub(super) struct Stay {
    pub(super) thing: Thing,
    /// The exact owner references that the object must have.
    pub(super) owners: Vec<Value>,
    pub(super) why: String,
}

/// Creates all objects through the API server.
pub(super) async fn build(api: &Api, server: &Server, objects: usize) -> anyhow::Result<World> {
    let known = uids(server);
    let mut builder = Builder { api, acts: Vec::new(), stays: Vec::new(), built: 0 };
    let definition = builder.create(&DEFINITION, "", "databases.shop.example.com", &[], definition()).await?;
    // Objects that a definition creates count as the API server's own, like the initial ones.
    let before = known.into_iter().chain(uids(server)).filter(|uid| *uid != definition.uid).collect();
    builder.stays(definition, vec![], NO_OWNER);
    for name in [SHOP, BULK] {
        let namespace = builder.create(&NAMESPACE, "", name, &[], json!({})).await?;
        builder.stays(namespace, vec![], NO_OWNER);
    }
    let settings = builder.create(&CONFIG_MAP, SHOP, "settings", &[], json!({})).await?;
    builder.stays(settings, vec![], NO_OWNER);
    builder.background().await?;
    builder.foreground().await?;
    builder.orphan().await?;
    builder.shared().await?;
    builder.cascade(objects).await?;
    Ok(World { acts: builder.acts, stays: builder.stays, built: builder.built, before })
}

/// The uids of all objects of the API server.
fn uids(server: &Server) -> BTreeSet<String> {
    server.with_model(|model| model.all_objects().map(|(_, object)| uid(object).to_owned()).collect())
}

struct Builder<'a> {
    api: &'a Api,
    acts: Vec<Act>,
    stays: Vec<Stay>,
    built: usize,
}

impl Builder<'_> {
    async fn background(&mut self) -> anyhow::Result<()> {
        let template = json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "web", "image": "web:2" }] } });
        let spec = json!({ "spec": { "selector": { "matchLabels": { "app": "web" } }, "template": template } });
        let web = self.create(&DEPLOYMENT, SHOP, "web", &[], spec.clone()).await?;
        let mut goes = Vec::new();
        for (set, pods) in [("web-5d41", &["kx2p9"][..]), ("web-7f9c", &["2xk8q", "p9d4m"])] {
            let owner = self.create(&REPLICA_SET, SHOP, set, &[controller(&web)], spec.clone()).await?;
            let mut made = Vec::new();
            for pod in pods {
                let body = json!({ "spec": { "containers": [{ "name": "web", "image": "web:2" }] } });
                made.push(self.create(&POD, SHOP, &format!("{set}-{pod}"), &[controller(&owner)], body).await?);
            }
            goes.push(owner);
            goes.extend(made);
        }
        self.acts.push(Act {
            name: "background",
            title: format!("Background: {web} is deleted"),
            text: "The API server removes the owner at once. Its dependents are garbage, level by level.",
            policy: Cascade::Background,
            deleted: vec![web],
            goes,
            changes: vec![],
            big: false,
        });
        Ok(())
    }

    async fn foreground(&mut self) -> anyhow::Result<()> {
        let orders = self.database("orders").await?;
        let config = self.create(&CONFIG_MAP, SHOP, "orders-config", &[orders.as_owner()], json!({})).await?;
        let reader = self.create(&SECRET, SHOP, "orders-reader", &[config.as_owner()], json!({})).await?;
        let writer = self.create(&SECRET, SHOP, "orders-writer", &[config.as_owner()], json!({})).await?;
        let claim = self.create(&CLAIM, SHOP, "data-orders-0", &[orders.as_owner()], json!({})).await?;
        self.acts.push(Act {
            name: "foreground",
            title: format!("Foreground: {orders}, a custom resource, is deleted"),
            text: "The owner waits until its dependents are gone, and they wait for their own dependents: the leaves go first.",
            policy: Cascade::Foreground,
            deleted: vec![orders],
            goes: vec![config, reader, writer, claim],
            changes: vec![],
            big: false,
        });
        Ok(())
    }

    async fn orphan(&mut self) -> anyhow::Result<()> {
        let archive = self.database("archive").await?;
        let mut changes = Vec::new();
        for (kind, name) in [(&CLAIM, "data-archive-0"), (&CONFIG_MAP, "archive-2024"), (&CONFIG_MAP, "archive-2025")] {
            changes.push(self.create(kind, SHOP, name, &[archive.as_owner()], json!({})).await?);
        }
        for thing in &changes {
            self.stays(
                thing.clone(),
                vec![],
                &format!("{archive} was deleted with policy Orphan, so the reference is removed"),
            );
        }
        self.acts.push(Act {
            name: "orphan",
            title: format!("Orphan: {archive} is deleted, and its dependents stay"),
            text: "Every dependent loses its reference before the owner is removed, so that no dependent is ever garbage.",
            policy: Cascade::Orphan,
            deleted: vec![archive],
            goes: vec![],
            changes,
            big: false,
        });
        Ok(())
    }

    async fn shared(&mut self) -> anyhow::Result<()> {
        let billing = self.database("billing").await?;
        let invoices = self.database("invoices").await?;
        let both = [billing.as_owner(), invoices.as_owner()];
        let shared = self.create(&SECRET, SHOP, "shared-ca", &both, json!({})).await?;
        let own = self.create(&CONFIG_MAP, SHOP, "invoices-config", &[invoices.as_owner()], json!({})).await?;
        let other = self.create(&CONFIG_MAP, SHOP, "billing-config", &[billing.as_owner()], json!({})).await?;
        self.stays(
            shared.clone(),
            vec![billing.as_owner()],
            &format!("{billing} still owns it; the reference to {invoices} is removed"),
        );
        self.stays(other, vec![billing.as_owner()], &format!("owner {billing} lives"));
        self.stays(billing, vec![], NO_OWNER);
        self.acts.push(Act {
            name: "shared-owner",
            title: format!("Shared: {invoices} is deleted, one of two owners of {shared}"),
            text: "One existing owner is enough to stay; only the reference to the deleted owner is removed.",
            policy: Cascade::Background,
            deleted: vec![invoices],
            goes: vec![own],
            changes: vec![shared],
            big: false,
        });
        Ok(())
    }

    async fn cascade(&mut self, objects: usize) -> anyhow::Result<()> {
        let count = BULK_OWNERS.min(objects);
        let mut owners = Vec::new();
        for number in 0..count {
            owners.push(self.create(&CONFIG_MAP, BULK, &format!("owner-{number:02}"), &[], json!({})).await?);
        }
        let names = (0..objects).map(|number| format!("item-{number:06}"));
        let references: Vec<Value> = owners.iter().map(Thing::as_owner).collect();
        let goes = self.create_many(names, |number| &references[number % count]).await?;

        let keeper = self.create(&CONFIG_MAP, BULK, "keeper", &[], json!({})).await?;
        let names = (0..BULK_KEPT_MAX.min(objects)).map(|number| format!("kept-{number:03}"));
        let reference = keeper.as_owner();
        for thing in self.create_many(names, |_| &reference).await? {
            self.stays(thing, vec![reference.clone()], &format!("owner {keeper} lives"));
        }
        self.stays(keeper, vec![], NO_OWNER);
        self.acts.push(Act {
            name: "cascade",
            title: format!("Cascade: {count} owners of {objects} ConfigMaps are deleted at once"),
            text: "One proof per owner serves all its dependents, and each of them takes one request.",
            policy: Cascade::Background,
            deleted: owners,
            goes,
            changes: vec![],
            big: true,
        });
        Ok(())
    }

    async fn create_many<'o>(
        &mut self,
        names: impl Iterator<Item = String>,
        owner: impl Fn(usize) -> &'o Value,
    ) -> anyhow::Result<Vec<Thing>> {
        let api = self.api;
        let creations = names.enumerate().map(|(number, name)| {
            let owners = [owner(number).clone()];
            async move { api.create(&CONFIG_MAP, BULK, &name, &owners, json!({ "data": { "key": "value" } })).await }
        });
        let made: Vec<Thing> = futures::stream::iter(creations).buffered(CREATIONS_MAX).try_collect().await?;
        self.built += made.len();
        Ok(made)
    }

    async fn database(&mut self, name: &str) -> anyhow::Result<Thing> {
        self.create(&DATABASE, SHOP, name, &[], json!({ "spec": { "engine": "postgres" } })).await
    }

    async fn create(
        &mut self,
        kind: &'static Kind,
        namespace: &str,
        name: &str,
        owners: &[Value],
        body: Value,
    ) -> anyhow::Result<Thing> {
        self.built += 1;
        self.api.create(kind, namespace, name, owners, body).await
    }

    fn stays(&mut self, thing: Thing, owners: Vec<Value>, why: &str) {
        self.stays.push(Stay { thing, owners, why: why.to_owned() });
    }
}

fn controller(owner: &Thing) -> Value {
    let mut reference = owner.as_owner();
    reference["controller"] = json!(true);
    reference
}

fn definition() -> Value {
    json!({
        "spec": {
            "group": "shop.example.com", "scope": "Namespaced",
            "names": { "plural": "databases", "singular": "database", "kind": "Database", "listKind": "DatabaseList", "shortNames": ["db"] },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}

/// An object as the API server returns it.
struct Found {
    label: String,
    owners: Value,
    terminating: bool,
}

/// The differences between the API server's state and the expected state, one sentence each.
pub(super) fn problems(world: &World, server: &Server) -> Vec<String> {
    let mut found: BTreeMap<String, Found> = server.with_model(|model| {
        // The collector posts an Event about each finished cascade.
        let is_event = |resource: &GroupResource| &*resource.resource == "events";
        let all = model.all_objects().filter(|(resource, _)| !is_event(resource));
        let all = all.filter(|(_, object)| !world.before.contains(uid(object)));
        all.map(|(resource, object)| (uid(object).to_owned(), as_found(resource, object))).collect()
    });
    let mut problems = Vec::new();
    for Stay { thing, owners, .. } in &world.stays {
        match found.remove(&thing.uid) {
            None => problems.push(format!("{thing} should exist, but is gone")),
            Some(found) if found.terminating => problems.push(format!("{thing} should stay, but is being deleted")),
            Some(found) if found.owners != json!(owners) => {
                problems.push(format!("{thing} has the references {} instead of {}", found.owners, json!(owners)));
            }
            Some(_) => {}
        }
    }
    problems.extend(found.into_values().map(|found| format!("{} should be deleted, but still exists", found.label)));
    problems
}

fn as_found(resource: &GroupResource, object: &Object) -> Found {
    let owners = object.get("metadata").and_then(|metadata| metadata.get("ownerReferences"));
    Found {
        label: format!("{resource} {}/{}", namespace(object), name(object)),
        owners: owners.cloned().unwrap_or_else(|| json!([])),
        terminating: is_terminating(object),
    }
}

#[cfg(test)]
mod tests;
