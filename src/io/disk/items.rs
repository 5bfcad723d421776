//! KubeEdge's table `meta_v2`: the objects that MetaServer serves when the cloud does not answer.
//! EdgeCore finds them when it comes back, and edged finds those of EdgeCore.
//!
//! Rows of resources that are not served, such as secrets, stay as they are and are not read; so do
//! those that cannot be used. A table that cannot be read is logged and counts as empty: what is in
//! it is listed again.

use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row as SqlRow, params};

use crate::limits::{METASERVER_OBJECTS_MAX, OBJECT_JSON_BYTES_MAX};
use crate::model::application::Item;
use crate::model::meta::{Change, DiskError, Row};
use crate::model::metaserver::{MetaServerSettings, RowChange, StoredItem};
use crate::model::tree::within_object;
use crate::wire::metaserver::item;

/// KubeEdge's own statement.
const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS `meta_v2` (`key` text,\
                      `group_version_resource` text,`namespace` text,`name` text,\
                      `resource_version` integer,`value` text,PRIMARY KEY (`key`))";

const PUT: &str = "INSERT INTO meta_v2 (key, group_version_resource, namespace, name, \
                   resource_version, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (key) DO \
                   UPDATE SET group_version_resource = excluded.group_version_resource, namespace \
                   = excluded.namespace, name = excluded.name, resource_version = \
                   excluded.resource_version, value = excluded.value";

/// The objects of pods, and of others that are rows of `meta`.
pub(super) fn of_meta(rows: &[Row], settings: &MetaServerSettings) -> Vec<StoredItem> {
    let kinds = ["pod", "service", "endpoints", "configmap", "device", "devicemodel"];
    let rows = rows.iter().filter(|row| kinds.contains(&&*row.kind));
    let item = |row: &Row| {
        let item = usable(&row.value, settings)?;
        // EdgeCore has a device that was edited on the node a second time, as `updated`.
        let is_it = row.key.rsplit('/').next() == Some(&*item.name);
        is_it.then_some(item)
    };
    rows.filter_map(item).map(|item| StoredItem { item, has_row: false }).collect()
}

fn usable(text: &str, settings: &MetaServerSettings) -> Option<Arc<Item>> {
    within_object(text).ok()?;
    let item = item::read(text, None)?;
    settings.of_item(&item).is_some().then(|| Arc::new(item))
}

/// The rows that are served, of so many bytes at most.
pub(super) fn read(
    conn: &Connection,
    settings: &MetaServerSettings,
    bytes_max: usize,
) -> Vec<StoredItem> {
    let mut items = Vec::new();
    let mut left = 0_usize;
    let mut read = || -> rusqlite::Result<()> {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'meta_v2'";
        if conn.query_row(sql, [], |row| row.get::<_, i64>(0))? == 0 {
            return Ok(());
        }
        let mut bytes = 0;
        let mut statement =
            conn.prepare("SELECT value FROM meta_v2 WHERE group_version_resource = ?1")?;
        for served in &settings.served {
            let mut rows = statement.query(params![served.gvr.to_string()])?;
            while let Some(row) = rows.next()? {
                let item = value(row).and_then(|text| usable(&text, settings));
                let item = item.filter(|item| {
                    items.len() < METASERVER_OBJECTS_MAX && bytes + item.text.len() <= bytes_max
                });
                if let Some(item) = item {
                    bytes += item.text.len();
                    items.push(StoredItem { item, has_row: true });
                } else {
                    left += 1;
                }
            }
        }
        Ok(())
    };
    if let Err(error) = read() {
        log::warn!("the store's table meta_v2 cannot be read: {error}");
    }
    if left > 0 {
        log::warn!(
            "{left} rows of the store's table meta_v2 are not read: no objects, or too many"
        );
    }
    items
}

fn value(row: &SqlRow<'_>) -> Option<String> {
    match row.get_ref(0).ok()? {
        ValueRef::Text(bytes) if bytes.len() <= OBJECT_JSON_BYTES_MAX => {
            String::from_utf8(bytes.to_vec()).ok()
        }
        _ => None,
    }
}

/// Applies the changes of this table.
pub(super) fn apply(conn: &Connection, changes: &[Change]) -> Result<(), DiskError> {
    let of_it = |change: &Change| matches!(change, Change::Item(_));
    if !changes.iter().any(of_it) {
        return Ok(());
    }
    conn.execute_batch(SCHEMA)?;
    for change in changes {
        match change {
            Change::Item(RowChange::Put(gvr, item)) => {
                let key = gvr.key(&item.namespace, &item.name);
                let version = item.version as i64;
                let values =
                    params![key, gvr.to_string(), item.namespace, item.name, version, item.text];
                conn.execute(PUT, values)?;
            }
            Change::Item(RowChange::Delete(key)) => {
                conn.execute("DELETE FROM meta_v2 WHERE key = ?1", params![key])?;
            }
            _ => {}
        }
    }
    Ok(())
}
