//! What the rest of the mind sees of the cloud side.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Cloud;
use super::content::StoredObject;
use crate::agent::calls::Uid;
use crate::agent::pods::Knowledge;
use crate::agent::time::Now;
use crate::model::meta::StoreOrigin;
use crate::model::object::Object;
use crate::model::pod::Pod;
use crate::model::token::Token;
use crate::model::view::CloudOverview;

impl Cloud {
    /// How it stands with the cloud.
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
            objects: self.meta.things().count(),
        }
    }

    /// A look found no pod that nobody knows.
    pub(in crate::agent) fn nothing_is_unknown(&mut self) {
        self.meta.is_whole();
    }

    /// What is known of the cloud's pods.
    pub(in crate::agent) fn knowledge(&self) -> Knowledge {
        match self.meta.origin() {
            None => Knowledge::Silent,
            Some(StoreOrigin::New | StoreOrigin::Lost(_)) => Knowledge::Broken,
            Some(StoreOrigin::Part { .. }) => Knowledge::Broken,
            Some(StoreOrigin::Kept) => Knowledge::Whole,
        }
    }

    /// Pods that the store does not know, and of which the cloud says that they are gone.
    pub(in crate::agent) fn doomed(&self) -> &BTreeSet<Uid> {
        self.meta.doomed()
    }

    /// The pods that the cloud wants here.
    pub(in crate::agent) fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.meta.things().filter_map(|thing| match thing {
            StoredObject::Pod(pod) => Some(&**pod),
            _ => None,
        })
    }

    /// The tokens that they were given.
    pub(in crate::agent) fn service_account_tokens(&self) -> Vec<Arc<Token>> {
        self.meta.tokens().cloned().collect()
    }

    /// The objects that they use.
    pub(in crate::agent) fn objects(&self) -> impl Iterator<Item = Arc<Object>> {
        self.meta.objects()
    }
}
