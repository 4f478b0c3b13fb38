//! Conditions on objects.

use super::status;
use engine::object::ObjectRef;
use proto::r#type::v1alpha1 as wire;
use proto::r#type::v1alpha1::ObjectFilter;
use tonic::Status;

/// Most conditions in all filters of one request.
const CONDITIONS_MAX: usize = 1000;

/// Admits what one of its filters admits.
#[derive(Clone, Debug)]
pub(super) struct Filter(Vec<ObjectFilter>);

impl Filter {
    /// `None` where there is no filter.
    pub(super) fn of(filters: &[ObjectFilter]) -> Result<Option<Filter>, Status> {
        let conditions = |filter: &ObjectFilter| filter.resources.len() + filter.namespaces.len() + filter.uids.len();
        let count: usize = filters.iter().map(|filter| conditions(filter).max(1)).sum();
        if count > CONDITIONS_MAX {
            return Err(status::bad_field("include", &format!("has {count} conditions; at most {CONDITIONS_MAX}")));
        }
        Ok((!filters.is_empty()).then(|| Filter(filters.to_vec())))
    }

    pub(super) fn admits(&self, object: &ObjectRef) -> bool {
        self.any(&object.group, &object.resource, &object.namespace, &object.uid.to_string())
    }

    /// The same for an object as the wire has it.
    pub(super) fn admits_wire(&self, object: &wire::ObjectRef) -> bool {
        self.any(&object.group, &object.resource, &object.namespace, &object.uid)
    }

    fn any(&self, group: &str, resource: &str, namespace: &str, uid: &str) -> bool {
        self.0.iter().any(|filter| {
            let is = |wanted: &wire::GroupResource| wanted.group == group && wanted.resource == resource;
            (filter.resources.is_empty() || filter.resources.iter().any(is))
                && (filter.namespaces.is_empty() || filter.namespaces.iter().any(|name| name == namespace))
                && (filter.uids.is_empty() || filter.uids.iter().any(|wanted| wanted == uid))
        })
    }
}
