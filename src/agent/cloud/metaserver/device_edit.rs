//! Devices that are edited on the node: `keadm ctl edit device` (metaserver.md, section 11.4).
//!
//! ```text
//!  edited ──a row, durable──▶ the device is as the edit says ──the cloud changes its spec──▶ it is
//!     ▲                                                        as the cloud says
//!     └── again, or back to the cloud's spec
//! ```
//!
//! Intended behaviour: an edit works without the cloud, and its client is answered when it is
//! durable: from then on mappers and MQTT clients have it, over restarts and reboots. The cloud is
//! not told; it wins as soon as it changes the spec, and its echo of what it had does not.
//!
//! **If we crash here** what was answered is in the store.

use crate::agent::cloud::Cloud;
use crate::agent::cloud::devices::key_of;
use crate::agent::cloud::meta::ChangeOutcome;
use crate::agent::cloud::rows::{DEVICE_EDIT, DeviceEdit, StoredObject};
use crate::limits::{Budget, DEVICE_EDITS_MAX};
use crate::model::device::{DeviceId, DeviceObject};
use crate::model::metaserver::{ClientId, DevicePut, Failure, Reply};
use crate::model::tree;

/// The clients whose edits are not durable yet. Each has one request, so they are as bounded as the
/// clients.
pub(super) type Edits = Vec<(ClientId, DeviceId)>;

impl Cloud {
    /// A client edits a device. Returns the answer, unless it has to wait for the store.
    pub(in crate::agent::cloud) fn edit_device(
        &mut self,
        client: ClientId,
        put: &DevicePut,
    ) -> Option<Reply> {
        let id = DeviceId::new(&put.namespace, &put.name);
        match self.begin_edit(&id, &put.text) {
            Ok(()) => self.metaserver.edits.push((client, id)),
            Err((code, reason, message)) => {
                return Some(Reply::Failure(Failure::new(code, reason, message)));
            }
        }
        None
    }

    /// Queues the row of an edit, or its removal.
    fn begin_edit(&mut self, id: &DeviceId, text: &str) -> Result<(), (u16, &'static str, String)> {
        let stored = self.meta.stored_object(&key_of("device", id));
        let device = match stored {
            Some(StoredObject::Device(device)) if self.devices.serves(device) => device.clone(),
            _ => {
                let (kind, name) = ("devices.devices.kubeedge.io", id.name());
                let message = format!("{kind} {name:?} not found among the devices of this node");
                return Err((404, "NotFound", message));
            }
        };
        let edited =
            edited_object(id, text, self.meta.budget()).map_err(|why| (400, "BadRequest", why))?;
        let (is, was) = (&edited.view, &device.view);
        if !is.uid.is_empty() && is.uid != was.uid {
            let (got, has) = (&is.uid, &was.uid);
            let message = format!("got uid {got:?}, expected {has:?}: the device was made anew");
            return Err((409, "Conflict", message));
        }
        if is.node != was.node {
            let (got, has) = (&is.node, &was.node);
            let message = format!(
                "spec.nodeName: got {got:?}, expected {has:?}: it can be changed only in the cloud"
            );
            return Err((422, "Invalid", message));
        }
        let key = key_of(DEVICE_EDIT, id);
        let outcome = if is.spec == was.spec {
            self.meta.delete(&key, "", None)
        } else {
            if self.meta.stored_object(&key).is_none() && self.edits() >= DEVICE_EDITS_MAX {
                let message = format!("this node has {DEVICE_EDITS_MAX} edited devices: no more");
                return Err((429, "TooManyRequests", message));
            }
            let edit = DeviceEdit::new(&device, text).map_err(|why| (400, "BadRequest", why))?;
            self.meta.put(&key, DEVICE_EDIT, &edit.row(), None)
        };
        match outcome {
            ChangeOutcome::Queued | ChangeOutcome::Unchanged => Ok(()),
            ChangeOutcome::Refused(why) => {
                Err((500, "InternalError", format!("the edit of {id}: {why}")))
            }
            ChangeOutcome::Dropped => {
                let why = format!("the edit of {id}: the store is busy: try again");
                Err((503, "ServiceUnavailable", why))
            }
        }
    }

    /// Edits that are stored, or about to be.
    fn edits(&self) -> usize {
        let is_edit = |object: &&StoredObject| matches!(object, StoredObject::DeviceEdit(_));
        self.meta.stored_objects().filter(is_edit).count() + self.metaserver.edits.len()
    }

    /// Answers the clients whose edits have become durable, with the device as it is now, and tells
    /// it to those that watch it.
    pub(in crate::agent::cloud) fn answer_edits(&mut self) {
        let Self { meta, metaserver, devices, .. } = self;
        let durable =
            metaserver.edits.extract_if(.., |(_, id)| !meta.is_pending(&key_of(DEVICE_EDIT, id)));
        let durable: Vec<_> = durable.collect();
        for (client, id) in durable {
            if let Some(core) = &mut metaserver.core {
                core.device_edited(id.namespace(), id.name());
            }
            let reply = if let Some(text) = devices.text(&id) {
                Reply::Remote(200, text.into())
            } else {
                let message = format!("the cloud has deleted {id} meanwhile");
                Reply::Failure(Failure::new(404, "NotFound", message))
            };
            metaserver.reply(client, reply);
        }
    }
}

/// The object of a client's text, if it may be one of this device.
fn edited_object(id: &DeviceId, text: &str, budget: &Budget) -> Result<DeviceObject, String> {
    let values = tree::within_values(text, budget.message_values_max, budget);
    values.map_err(|fault| format!("got a device: {fault}"))?;
    let object = DeviceObject::read(text).map_err(|fault| format!("got no device: {fault}"))?;
    if object.id != *id {
        return Err(format!("got the device {}, expected {id}, as in the path", object.id));
    }
    Ok(object)
}
