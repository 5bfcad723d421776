//! What the rest of the core sees of the cloud side.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Cloud;
use super::rows::StoredObject;
use crate::agent::calls::Uid;
use crate::agent::pods::Knowledge;
use crate::agent::time::Now;
use crate::model::meta::StoreOrigin;
use crate::model::object::Object;
use crate::model::pod::Pod;
use crate::model::token::Token;
use crate::model::view::CloudOverview;

impl Cloud {
    /// The state of the cloud side, for the status display.
    pub(in crate::agent) fn overview(&self, now: Now) -> CloudOverview {
        CloudOverview {
            up_ms: self.hub.up_ms(now),
            trouble: self.hub.trouble().map(str::to_owned),
            store_trouble: self.meta.trouble().map(str::to_owned),
            store_is_new: self.knowledge() == Knowledge::Broken,
            store_loss: match self.meta.origin() {
                Some(StoreOrigin::Lost(why)) => Some(why.clone()),
                _ => None,
            },
            objects: self.meta.stored_objects().count(),
        }
    }

    /// A relist of the runtime found no unknown pods.
    pub(in crate::agent) fn all_pods_known(&mut self) {
        self.meta.set_complete();
    }

    /// How much is known of the cloud's pods.
    pub(in crate::agent) fn knowledge(&self) -> Knowledge {
        match self.meta.origin() {
            None => Knowledge::Silent,
            Some(StoreOrigin::New | StoreOrigin::Lost(_)) => Knowledge::Broken,
            Some(StoreOrigin::Part { .. }) => Knowledge::Broken,
            Some(StoreOrigin::Kept) => Knowledge::Whole,
        }
    }

    /// Pods that the store does not know, and that the cloud has deleted.
    pub(in crate::agent) fn tombstones(&self) -> &BTreeSet<Uid> {
        self.meta.tombstones()
    }

    /// The pods that the cloud wants here.
    pub(in crate::agent) fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.meta.stored_objects().filter_map(|object| match object {
            StoredObject::Pod(pod) => Some(&**pod),
            _ => None,
        })
    }

    /// The tokens of these pods.
    pub(in crate::agent) fn service_account_tokens(&self) -> Vec<Arc<Token>> {
        self.meta.tokens().cloned().collect()
    }

    /// The objects that these pods use.
    pub(in crate::agent) fn objects(&self) -> impl Iterator<Item = Arc<Object>> {
        self.meta.objects()
    }
}
