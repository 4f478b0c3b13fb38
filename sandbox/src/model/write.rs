//! Create, update and patch.

use std::sync::Arc;

use serde_json::Value;

use super::clock::Now;
use super::error::{ApiError, Cause, Details, Reason};
use super::kinds::{GroupResource, StatusRule, Type};
use super::metadata::{self, Object};
use super::options::{Subresource, WriteOptions};
use super::store::ObjectKey;
use super::{Model, custom, namespaces, patch, strategic, validate};

/// A patch and its type.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    /// RFC 6902.
    Json(Value),
    /// RFC 7386.
    Merge(Value),
    /// Strategic merge patch, for built-in types only.
    Strategic(Value),
}

/// The outcome of a write.
#[derive(Debug, Clone)]
pub struct Written {
    pub object: Arc<Object>,
    /// For the `Warning` header.
    pub warning: Option<String>,
    /// The write removed the last finalizer of a terminating object: it is gone.
    pub removed: bool,
}

/// Maximum number of attempts to replace a generated name that is taken.
const NAME_ATTEMPTS_MAX: usize = 8;

impl Model {
    /// Creates an object. `namespace` is empty for cluster-scoped types.
    ///
    /// # Errors
    /// 400 for an object that does not belong here, 403 in a terminating namespace, 404 if the type or the
    /// namespace is missing, 409 for a name that is taken, 422 for invalid metadata.
    pub fn create(
        &mut self,
        now: Now,
        resource: &GroupResource,
        namespace: &str,
        mut object: Object,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let of = self.served(resource)?;
        check_type(&of, &mut object)?;
        metadata::normalize(&mut object)?;
        adopt_namespace(&of, namespace, &mut object)?;
        self.check_accepts_content(&of, &object)?;
        if metadata::revision(&object) != 0 {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(ApiError::new(Reason::InternalError, message));
        }
        let name = self.choose_name(&of, &mut object)?;
        for field in ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            metadata::unset(&mut object, field);
        }
        metadata::set(&mut object, "uid", self.random.uid());
        metadata::set(&mut object, "creationTimestamp", now.timestamp());
        if of.generation {
            metadata::set(&mut object, "generation", 1);
        }
        if of.status == StatusRule::Subresource {
            object.remove("status");
        }
        prepare(&of, now, &mut object)?;
        let warning = validate::drop_duplicate_references(&mut object);
        validate::on_create(&of, &object)?;
        let key = ObjectKey::new(metadata::namespace(&object), &name);
        if self.store.get(resource, &key).is_some() {
            return Err(ApiError::already_exists(&of, &name));
        }
        let object = if options.dry_run { Arc::new(object) } else { self.put(now, resource, key, object) };
        Ok(Written { object, warning, removed: false })
    }

    /// Replaces an object. A uid or a resourceVersion in it is a precondition.
    ///
    /// # Errors
    /// 404 if it is missing, 409 for a failed precondition, 422 for a changed immutable field.
    pub fn update(
        &mut self,
        now: Now,
        resource: &GroupResource,
        key: &ObjectKey,
        mut object: Object,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let of = self.served(resource)?;
        check_type(&of, &mut object)?;
        metadata::normalize(&mut object)?;
        check_name(key, &object)?;
        adopt_namespace(&of, &key.namespace, &mut object)?;
        let old = self.get(resource, &key.namespace, &key.name)?;
        let (wanted, actual) = (metadata::uid(&object), metadata::uid(&old));
        if !wanted.is_empty() && wanted != actual {
            let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {actual}");
            return Err(ApiError::conflict(&of, &key.name, &why));
        }
        if metadata::text(&object, "resourceVersion").is_empty() && of.custom {
            let cause = Cause::invalid("metadata.resourceVersion", "", "must be specified for an update");
            let mut error = ApiError::invalid(&of, &key.name, vec![cause]);
            of.plural.clone_into(&mut error.details.kind);
            return Err(error);
        }
        self.finish_update(now, &of, key, &old, object, options)
    }

    /// Patches an object. Another uid in the result is a 422, an old resourceVersion a 409.
    ///
    /// # Errors
    /// 415 for a strategic merge patch of a custom resource, whether the object exists or not; 404; 409; 422.
    pub fn patch(
        &mut self,
        now: Now,
        resource: &GroupResource,
        key: &ObjectKey,
        patch: &Patch,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let of = self.served(resource)?;
        if of.custom && matches!(patch, Patch::Strategic(_)) {
            let message = "the body of the request was in an unknown format - accepted media types include: \
                           application/json-patch+json, application/merge-patch+json";
            return Err(ApiError::new(Reason::UnsupportedMediaType, message));
        }
        let old = self.get(resource, &key.namespace, &key.name)?;
        let mut value = Value::Object(Object::clone(&old));
        match patch {
            Patch::Json(operations) => patch::apply_operations(&mut value, operations)?,
            Patch::Merge(fields) => patch::merge(&mut value, fields),
            Patch::Strategic(fields) => strategic::apply(&of, &mut value, fields)?,
        }
        let Value::Object(mut object) = value else {
            return Err(ApiError::bad_request("the patched object is no object"));
        };
        check_type(&of, &mut object).map_err(|error| unpatchable(&error))?;
        metadata::normalize(&mut object)?;
        check_name(key, &object)?;
        adopt_namespace(&of, &key.namespace, &mut object)?;
        self.finish_update(now, &of, key, &old, object, options)
    }

    /// The common part of update and patch, once the new object is known.
    fn finish_update(
        &mut self,
        now: Now,
        of: &Type,
        key: &ObjectKey,
        old: &Arc<Object>,
        mut object: Object,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let version = metadata::text(&object, "resourceVersion");
        if !version.is_empty() && version != "0" && version != metadata::text(old, "resourceVersion") {
            let why = "the object has been modified; please apply your changes to the latest version and try again";
            return Err(ApiError::conflict(of, &key.name, why));
        }
        keep_system_fields(old, &mut object);
        keep_the_other_face(of, options.subresource, old, &mut object)?;
        let warning = validate::drop_duplicate_references(&mut object);
        if of.generation && specification_changed(of, old, &object) {
            metadata::set(&mut object, "generation", metadata::generation(old) + 1);
        }
        validate::on_update(of, old, &object)?;
        if of.group_resource() == custom::definitions() {
            custom::check_update(of, now, old, &mut object)?;
        }
        if object == **old {
            return Ok(Written { object: Arc::clone(old), warning, removed: false });
        }
        let resource = of.group_resource();
        if has_nothing_to_wait_for(of, old, &object) {
            if !options.dry_run {
                self.erase(now, &resource, key);
            }
            return Ok(Written { object: Arc::new(object), warning, removed: true });
        }
        let object = if options.dry_run { Arc::new(object) } else { self.put(now, &resource, key.clone(), object) };
        Ok(Written { object, warning, removed: false })
    }

    /// The namespace must exist and not be terminating. A terminating definition accepts no new instances.
    fn check_accepts_content(&self, of: &Type, object: &Object) -> Result<(), ApiError> {
        let name = metadata::name(object);
        if of.custom && self.terminating_definitions.contains_key(&of.qualified()) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(ApiError::forbidden(of, name, why));
        }
        if !of.namespaced {
            return Ok(());
        }
        let namespace = metadata::namespace(object);
        if self.terminating_namespaces.contains_key(namespace) {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            let mut error = ApiError::forbidden(of, name, &why);
            let message = format!("namespace {namespace} is being terminated");
            let field = "metadata.namespace".to_owned();
            error.details.causes = vec![Cause { reason: "NamespaceTerminating", message, field }];
            return Err(error);
        }
        if self.store.get(&namespaces::namespaces(), &ObjectKey::new("", namespace)).is_none() {
            let mut error = ApiError::new(Reason::NotFound, format!("namespaces \"{namespace}\" not found"));
            let (name, kind) = (namespace.to_owned(), "namespaces".to_owned());
            *error.details = Details { name, kind, ..Details::default() };
            return Err(error);
        }
        Ok(())
    }

    /// The object's name, generated from `generateName` if it has none.
    fn choose_name(&mut self, of: &Type, object: &mut Object) -> Result<String, ApiError> {
        let name = metadata::name(object);
        if !name.is_empty() {
            return Ok(name.to_owned());
        }
        let prefix = metadata::text(object, "generateName").to_owned();
        if prefix.is_empty() {
            let cause = Cause::required("metadata.name", "name or generateName is required");
            return Err(ApiError::invalid(of, "", vec![cause]));
        }
        let mut key = ObjectKey::new(metadata::namespace(object), "");
        for _ in 0..NAME_ATTEMPTS_MAX {
            key.name = format!("{prefix}{}", self.random.suffix());
            if self.store.get(&of.group_resource(), &key).is_none() {
                break;
            }
        }
        metadata::set(object, "name", key.name.as_str());
        Ok(key.name)
    }
}

/// `apiVersion` and `kind` must be the type's; absent ones are filled in. Stored objects carry the storage version.
fn check_type(of: &Type, object: &mut Object) -> Result<(), ApiError> {
    let given = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (given("apiVersion"), given("kind"));
    if !kind.is_empty() && kind != of.kind {
        let message = format!("{kind} in version \"{}\" cannot be handled as a {}", of.storage_api_version(), of.kind);
        return Err(ApiError::bad_request(message));
    }
    let ours = |version: &String| super::api_version(&of.group, version) == api_version;
    if !api_version.is_empty() && !of.versions.iter().any(ours) && api_version != of.storage_api_version() {
        let expected = super::api_version(&of.group, &of.versions[0]);
        let message =
            format!("the API version in the data ({api_version}) does not match the expected API version ({expected})");
        return Err(ApiError::bad_request(message));
    }
    object.insert("apiVersion".to_owned(), Value::from(of.storage_api_version()));
    object.insert("kind".to_owned(), Value::from(of.kind.as_str()));
    Ok(())
}

/// The error of a patch that changes the type of the object.
fn unpatchable(error: &ApiError) -> ApiError {
    let cause = Cause::invalid("patch", "", &error.message);
    let mut invalid = ApiError::new(Reason::Invalid, format!(" \"\" is invalid: {}: {}", cause.field, cause.message));
    invalid.details.causes = vec![cause];
    invalid
}

fn check_name(key: &ObjectKey, object: &Object) -> Result<(), ApiError> {
    let name = metadata::name(object);
    if name == key.name {
        return Ok(());
    }
    let message = format!("the name of the object ({name}) does not match the name on the URL ({})", key.name);
    Err(ApiError::bad_request(message))
}

fn adopt_namespace(of: &Type, namespace: &str, object: &mut Object) -> Result<(), ApiError> {
    if !of.namespaced {
        metadata::unset(object, "namespace");
        return Ok(());
    }
    let given = metadata::namespace(object);
    if namespace.is_empty() {
        return Err(ApiError::bad_request("an empty namespace may not be set during creation"));
    }
    if !given.is_empty() && given != namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(message));
    }
    metadata::set(object, "namespace", namespace);
    Ok(())
}

/// Defaults that the server sets in new objects of a few types.
fn prepare(of: &Type, now: Now, object: &mut Object) -> Result<(), ApiError> {
    match (of.group.as_str(), of.plural.as_str()) {
        ("", "namespaces") => namespaces::prepare(object),
        ("", "pods") => {
            object.insert("status".to_owned(), serde_json::json!({ "phase": "Pending" }));
        }
        (custom::GROUP, custom::RESOURCE) => custom::prepare(of, now, object)?,
        (super::aggregation::GROUP, super::aggregation::RESOURCE) => super::aggregation::prepare(now, object),
        _ => {}
    }
    Ok(())
}

/// Immutable fields: kept, or filled in if they are missing.
fn keep_system_fields(old: &Object, object: &mut Object) {
    for field in ["generation", "creationTimestamp", "resourceVersion"] {
        metadata::carry_over(old, object, field);
    }
    if metadata::uid(object).is_empty() {
        metadata::carry_over(old, object, "uid");
    }
    if metadata::namespace(object).is_empty() {
        metadata::carry_over(old, object, "namespace");
    }
    if metadata::is_terminating(old) {
        metadata::carry_over(old, object, "deletionTimestamp");
    }
    if metadata::grace_seconds(object).is_none() {
        metadata::carry_over(old, object, "deletionGracePeriodSeconds");
    }
}

/// The main resource keeps `status`, and `/status` keeps everything else.
fn keep_the_other_face(of: &Type, subresource: Subresource, old: &Object, object: &mut Object) -> Result<(), ApiError> {
    match (of.status, subresource) {
        (StatusRule::Plain, Subresource::Main) => {}
        (StatusRule::Plain, Subresource::Status) => return Err(ApiError::resource_not_served()),
        (StatusRule::Subresource, Subresource::Main) => copy_field(old, object, "status"),
        (StatusRule::Subresource, Subresource::Status) => {
            let mut kept = old.clone();
            // Another uid must still be refused.
            metadata::carry_over(object, &mut kept, "uid");
            copy_field(object, &mut kept, "status");
            *object = kept;
        }
    }
    if of.group_resource() == namespaces::namespaces() {
        namespaces::keep_finalizers(old, object);
    }
    Ok(())
}

fn copy_field(from: &Object, to: &mut Object, field: &str) {
    match from.get(field) {
        Some(value) => {
            to.insert(field.to_owned(), value.clone());
        }
        None => {
            to.remove(field);
        }
    }
}

/// Whether a field changed that `generation` counts: everything but metadata and a separate status.
fn specification_changed(of: &Type, old: &Object, new: &Object) -> bool {
    let counts = |field: &str| {
        let own_status = field == "status" && of.status == StatusRule::Subresource;
        field != "metadata" && !own_status
    };
    let fields = |object: &Object| -> Vec<(String, Value)> {
        let counted = object.iter().filter(|(field, _)| counts(field));
        counted.map(|(field, value)| (field.clone(), value.clone())).collect()
    };
    fields(old) != fields(new)
}

/// A terminating object without grace that loses its last finalizer is removed instead of written.
fn has_nothing_to_wait_for(of: &Type, old: &Object, new: &Object) -> bool {
    let free = metadata::finalizers(new).is_empty();
    let due = metadata::is_terminating(old) && metadata::grace_seconds(old).unwrap_or(0) == 0;
    let emptied = of.group_resource() != namespaces::namespaces() || namespaces::is_empty(new);
    free && due && emptied
}
