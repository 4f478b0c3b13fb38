//! Conditions on objects.

use super::status;
use engine::object::ObjectRef;
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
        self.0.iter().any(|filter| {
            let resource = |wanted: &proto::r#type::v1alpha1::GroupResource| {
                wanted.group == *object.group && wanted.resource == *object.resource
            };
            (filter.resources.is_empty() || filter.resources.iter().any(resource))
                && (filter.namespaces.is_empty() || filter.namespaces.iter().any(|name| **name == *object.namespace))
                && (filter.uids.is_empty() || filter.uids.iter().any(|uid| *uid == object.uid.to_string()))
        })
    }
}
