//! The tables of devices: KubeEdge's `device`, `device_attr` and `device_twin` with its values, so
//! that a node may be taken over from EdgeCore and back, and three of our own beside them.
//!
//! ```text
//!  edged_device          what the cloud has not confirmed of a device's state; the uid of its
//!                        object
//!  edged_twin            the same of a property (2: but the cloud may have a newer actual value);
//!                        the desired value that was taken over last
//!  edged_mapper_object   the digest of each object that a mapper has acknowledged
//! ```
//!
//! EdgeCore ignores these. A row of its own that has none of ours counts as not confirmed: it never
//! sends what was written while the cloud was away.
//!
//! A table that cannot be read is logged and counts as empty: devices follow from the objects, and
//! their values are reported again.

use std::collections::BTreeMap;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};
use serde::Deserialize;

use crate::limits::{
    ATTRIBUTES_MAX, DEVICE_DESCRIPTION_BYTES_MAX, DEVICE_ID_BYTES_MAX, DEVICE_WORD_BYTES_MAX,
    MAPPERS_MAX, NODE_DEVICES_MAX, STORE_KEY_BYTES_MAX, TWIN_NAME_BYTES_MAX, TWIN_VALUE_BYTES_MAX,
    TWINS_MAX,
};
use crate::model::device::{
    Acknowledged, Attribute, AttributeRow, DeviceChange, DeviceId, DeviceRow, DeviceState,
    StoredDevices, Twin, TwinRow, TwinSide, TwinVersion,
};
use crate::model::meta::{Change, DiskError, Saved};

/// KubeEdge's own statements (gorm's since 1.23; the columns are the same before), and ours.
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS `device` (`id` text,`name` text,`description` text,`state` text,\
`last_online` text,PRIMARY KEY (`id`));
CREATE TABLE IF NOT EXISTS `device_attr` (`id` integer PRIMARY KEY AUTOINCREMENT,`deviceid` text,\
`name` text,`description` text,`value` text,`optional` numeric,`attr_type` text,`metadata` text);
CREATE TABLE IF NOT EXISTS `device_twin` (`id` integer PRIMARY KEY AUTOINCREMENT,`deviceid` text,\
`name` text,`description` text,`expected` text,`actual` text,`expected_meta` text,\
`actual_meta` text,`expected_version` text,`actual_version` text,`optional` numeric,\
`attr_type` text,`metadata` text);
CREATE TABLE IF NOT EXISTS edged_device (deviceid text PRIMARY KEY, unsent integer,
uid text) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS edged_twin (deviceid text, name text, unsent integer, desired text,
PRIMARY KEY (deviceid, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS edged_mapper_object (mapper text, object text, digest text,
PRIMARY KEY (mapper, object)) WITHOUT ROWID;";

/// Reads the tables that are there.
pub(super) fn read(conn: &Connection, saved: &mut Saved) {
    let StoredDevices { devices, attributes, twins, acknowledged } = &mut saved.devices;
    let ours = |table: &str, columns: &str| {
        if has(conn, table) {
            return (columns.to_owned(), format!(" LEFT JOIN {table} USING (deviceid, name)"));
        }
        (columns.split(',').map(|_| "NULL").collect::<Vec<_>>().join(", "), String::new())
    };
    let (columns, join) = ours("edged_device", "unsent, uid");
    let join = join.replace("USING (deviceid, name)", "ON deviceid = id");
    let sql = format!("SELECT id, description, state, last_online, {columns} FROM device{join}");
    read_table(conn, "device", &sql, NODE_DEVICES_MAX, |row| {
        devices.push(device(row)?);
        Some(())
    });
    let sql = "SELECT deviceid, name, value, optional, attr_type FROM device_attr ORDER BY id";
    read_table(conn, "device_attr", sql, ATTRIBUTES_MAX, |row| {
        attributes.push(attribute(row)?);
        Some(())
    });
    // The last one wins where an interrupted update of EdgeCore has left two.
    let mut by_name = BTreeMap::new();
    let (columns, join) = ours("edged_twin", "unsent, desired");
    let sql = format!(
        "SELECT deviceid, name, expected, expected_meta, expected_version, actual, actual_meta, \
         actual_version, optional, attr_type, {columns} FROM device_twin{join}"
    );
    read_table(conn, "device_twin", &sql, TWINS_MAX, |row| {
        let twin = twin(row)?;
        by_name.insert((twin.device.clone(), twin.property.clone()), twin);
        Some(())
    });
    twins.extend(by_name.into_values());
    let sql = "SELECT mapper, object, digest FROM edged_mapper_object";
    read_table(conn, "edged_mapper_object", sql, MAPPERS_MAX * 2 * NODE_DEVICES_MAX, |row| {
        let mapper = text(row, 0, TWIN_VALUE_BYTES_MAX)?;
        let object = text(row, 1, STORE_KEY_BYTES_MAX)?;
        let digest = u64::from_str_radix(&text(row, 2, 16)?, 16).ok()?;
        acknowledged.push(Acknowledged { mapper, object, digest });
        Some(())
    });
}

fn has(conn: &Connection, table: &str) -> bool {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    conn.query_row(sql, [table], |row| row.get::<_, i64>(0)).is_ok_and(|count| count > 0)
}

/// Calls `take` for each row, up to so many; it returns `None` for a row that cannot be used.
fn read_table(
    conn: &Connection,
    table: &str,
    sql: &str,
    most: usize,
    mut take: impl FnMut(&Row<'_>) -> Option<()>,
) {
    if !has(conn, table) {
        return;
    }
    let mut left = 0_usize;
    let mut read = || -> rusqlite::Result<()> {
        let mut statement = conn.prepare(sql)?;
        let mut rows = statement.query([])?;
        let mut taken = 0;
        while let Some(row) = rows.next()? {
            if taken == most || take(row).is_none() {
                left += 1;
            } else {
                taken += 1;
            }
        }
        Ok(())
    };
    if let Err(error) = read() {
        log::warn!("the store's table {table} cannot be read: {error}");
    }
    if left > 0 {
        log::warn!("{left} rows of the store's table {table} are not read: too large, or too many");
    }
}

/// A text of at most so many bytes; empty for NULL. `None`: it is none.
fn text(row: &Row<'_>, at: usize, most: usize) -> Option<Box<str>> {
    match row.get_ref(at).ok()? {
        ValueRef::Null => Some(Box::default()),
        ValueRef::Text(bytes) if bytes.len() <= most => {
            std::str::from_utf8(bytes).ok().map(Into::into)
        }
        ValueRef::Text(_) | ValueRef::Blob(_) | ValueRef::Integer(_) | ValueRef::Real(_) => None,
    }
}

/// A text, or NULL. `None`: it is neither.
#[expect(clippy::option_option, reason = "NULL is a value here")]
fn optional(row: &Row<'_>, at: usize) -> Option<Option<Box<str>>> {
    if row.get_ref(at).ok()? == ValueRef::Null {
        return Some(None);
    }
    text(row, at, TWIN_VALUE_BYTES_MAX).map(Some)
}

/// `None`: NULL, or no number.
fn flag(row: &Row<'_>, at: usize) -> Option<bool> {
    row.get_ref(at).ok()?.as_i64().ok().map(|number| number != 0)
}

fn id(row: &Row<'_>) -> Option<DeviceId> {
    let id = text(row, 0, DEVICE_ID_BYTES_MAX)?;
    (!id.is_empty()).then(|| DeviceId::of(&id))
}

fn device(row: &Row<'_>) -> Option<DeviceRow> {
    Some(DeviceRow {
        id: id(row)?,
        description: text(row, 1, DEVICE_DESCRIPTION_BYTES_MAX)?,
        state: DeviceState {
            state: text(row, 2, DEVICE_WORD_BYTES_MAX)?,
            last_online: text(row, 3, DEVICE_WORD_BYTES_MAX)?,
        },
        is_unsent: flag(row, 4).unwrap_or(true),
        uid: optional(row, 5)?,
    })
}

fn attribute(row: &Row<'_>) -> Option<AttributeRow> {
    let name = text(row, 1, TWIN_NAME_BYTES_MAX)?;
    let attribute = Attribute {
        value: text(row, 2, TWIN_VALUE_BYTES_MAX)?,
        optional: flag(row, 3).unwrap_or(true),
        type_name: text(row, 4, DEVICE_WORD_BYTES_MAX)?,
    };
    (!name.is_empty()).then_some(AttributeRow { device: id(row)?, name, attribute })
}

fn twin(row: &Row<'_>) -> Option<TwinRow> {
    let property = text(row, 1, TWIN_NAME_BYTES_MAX)?;
    let type_name = text(row, 9, DEVICE_WORD_BYTES_MAX)?;
    let (mut expected, mut actual) = (None, None);
    side(row, 2, &mut expected)?;
    side(row, 5, &mut actual)?;
    let twin = Twin {
        expected,
        actual,
        optional: flag(row, 8).unwrap_or(true),
        type_name: if type_name.is_empty() { "string".into() } else { (&*type_name).into() },
    };
    let desired = optional(row, 11)?;
    let unsent = row.get_ref(10).ok().and_then(|value| value.as_i64().ok()).unwrap_or(UNSENT);
    (!property.is_empty()).then_some(TwinRow {
        device: id(row)?,
        property,
        twin,
        is_unsent: unsent != CONFIRMED,
        is_doubtful: unsent == DOUBTFUL,
        desired,
    })
}

/// Value, metadata and version from this column on, if there are any. `None`: they cannot be used.
fn side(row: &Row<'_>, at: usize, to: &mut Option<TwinSide>) -> Option<()> {
    #[derive(Default, Deserialize)]
    struct Meta {
        #[serde(default)]
        timestamp: i64,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Version {
        cloud: i64,
        edge: i64,
    }
    let value = text(row, at, TWIN_VALUE_BYTES_MAX)?;
    let (meta, version) =
        (text(row, at + 1, DEVICE_WORD_BYTES_MAX)?, text(row, at + 2, DEVICE_WORD_BYTES_MAX)?);
    if value.is_empty() && version.is_empty() {
        return Some(());
    }
    let Meta { timestamp } = serde_json::from_str(&meta).unwrap_or_default();
    let Version { cloud, edge } = serde_json::from_str(&version).unwrap_or_default();
    *to = Some(TwinSide {
        value: (!value.is_empty()).then_some(value),
        timestamp_ms: timestamp,
        version: TwinVersion { cloud, edge },
    });
    Some(())
}

/// Applies those changes that are about devices.
pub(super) fn apply(conn: &Connection, changes: &[Change]) -> Result<(), DiskError> {
    let mut own = changes.iter().filter_map(|change| match change {
        Change::Device(change) => Some(change),
        _ => None,
    });
    let Some(first) = own.next() else { return Ok(()) };
    conn.execute_batch(SCHEMA)?;
    [first].into_iter().chain(own).try_for_each(|change| Ok(apply_one(conn, change)?))
}

fn apply_one(conn: &Connection, change: &DeviceChange) -> rusqlite::Result<()> {
    match change {
        DeviceChange::PutDevice(row) => {
            let DeviceRow { id, description, state, is_unsent, uid } = row;
            let DeviceState { state, last_online } = state;
            conn.execute(
                PUT_DEVICE,
                params![id.as_str(), id.name(), description, state, last_online],
            )?;
            let sql = "INSERT OR REPLACE INTO edged_device VALUES (?1, ?2, ?3)";
            conn.execute(sql, params![id.as_str(), is_unsent, uid])?;
        }
        DeviceChange::RemoveDevice(id) => {
            for (table, column) in [
                ("device", "id"),
                ("device_attr", "deviceid"),
                ("device_twin", "deviceid"),
                ("edged_device", "deviceid"),
                ("edged_twin", "deviceid"),
            ] {
                conn.execute(&format!("DELETE FROM {table} WHERE {column} = ?1"), [id.as_str()])?;
            }
        }
        DeviceChange::PutTwin(row) => put_twin(conn, row)?,
        DeviceChange::PutAttributes(id, attributes) => {
            conn.execute("DELETE FROM device_attr WHERE deviceid = ?1", [id.as_str()])?;
            for (name, Attribute { value, optional, type_name }) in attributes {
                conn.execute(
                    ADD_ATTRIBUTE,
                    params![id.as_str(), name, value, optional, type_name],
                )?;
            }
        }
        DeviceChange::PutAcknowledged(Acknowledged { mapper, object, digest }) => {
            let sql = "INSERT OR REPLACE INTO edged_mapper_object VALUES (?1, ?2, ?3)";
            conn.execute(sql, params![mapper, object, format!("{digest:x}")])?;
        }
        DeviceChange::RemoveAcknowledged(mapper, object) => {
            let sql = "DELETE FROM edged_mapper_object WHERE mapper = ?1 AND object = ?2";
            conn.execute(sql, params![mapper, object])?;
        }
    }
    Ok(())
}

const PUT_DEVICE: &str = "INSERT INTO device (id, name, description, state, last_online) \
                          VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (id) DO UPDATE SET \
                          description = excluded.description, state = excluded.state, \
                          last_online = excluded.last_online";
const ADD_ATTRIBUTE: &str = "INSERT INTO device_attr (deviceid, name, description, value, \
                             optional, attr_type, metadata) VALUES (?1, ?2, '', ?3, ?4, ?5, '{}')";
const SET_TWIN: &str = "UPDATE device_twin SET expected = ?3, actual = ?4, expected_meta = ?5, \
                        actual_meta = ?6, expected_version = ?7, actual_version = ?8, \
                        optional = ?9, attr_type = ?10 WHERE deviceid = ?1 AND name = ?2";
const ADD_TWIN: &str = "INSERT INTO device_twin (deviceid, name, description, expected, actual, \
                        expected_meta, actual_meta, expected_version, actual_version, optional, \
                        attr_type, metadata) \
                        VALUES (?1, ?2, '', ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, '{}')";

/// Values of `edged_twin.unsent`.
const CONFIRMED: i64 = 0;
const UNSENT: i64 = 1;
const DOUBTFUL: i64 = 2;

/// A row that is the same is not written: most saves are of values, and each page costs flash.
const PUT_MARK: &str = "INSERT INTO edged_twin VALUES (?1, ?2, ?3, ?4) \
                        ON CONFLICT (deviceid, name) DO UPDATE SET \
                        unsent = excluded.unsent, desired = excluded.desired \
                        WHERE unsent IS NOT excluded.unsent OR desired IS NOT excluded.desired";

/// The table has no unique key.
fn put_twin(conn: &Connection, row: &TwinRow) -> rusqlite::Result<()> {
    let TwinRow { device, property, twin, is_unsent, is_doubtful, desired } = row;
    let unsent = match (is_unsent, is_doubtful) {
        (false, _) => CONFIRMED,
        (true, false) => UNSENT,
        (true, true) => DOUBTFUL,
    };
    let value = |side: &Option<TwinSide>| side.as_ref().and_then(|side| side.value.clone());
    let meta = |side: &Option<TwinSide>| {
        let side = side.as_ref().filter(|side| side.value.is_some())?;
        Some(format!("{{\"timestamp\":{}}}", side.timestamp_ms))
    };
    let version = |side: &Option<TwinSide>| {
        let version = side.as_ref().map(|side| side.version);
        version.map_or_else(String::new, |TwinVersion { cloud, edge }| {
            format!("{{\"cloud\":{cloud},\"edge\":{edge}}}")
        })
    };
    let Twin { expected, actual, optional, type_name } = twin;
    for sql in [SET_TWIN, ADD_TWIN] {
        let changed = conn.execute(
            sql,
            params![
                device.as_str(),
                property,
                value(expected),
                value(actual),
                meta(expected),
                meta(actual),
                version(expected),
                version(actual),
                optional,
                &**type_name,
            ],
        )?;
        if changed > 0 {
            break;
        }
    }
    conn.execute(PUT_MARK, params![device.as_str(), property, unsent, desired])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As EdgeCore leaves it (section 5 of spec `devices`).
    const EDGECORE: &str = r#"
        INSERT INTO device VALUES ('default/dev1', 'dev1', '', 'ONLINE', '2026-11-23T21:00:30Z');
        INSERT INTO device VALUES ('dev9', 'dev9', 'in the hall', '', '');
        INSERT INTO device_attr VALUES (1, 'default/dev1', 'maker', '', 'acme', 1, 'string', '{}');
        INSERT INTO device_twin VALUES (1, 'default/dev1', 'temp', '', '20', '19',
            '{"timestamp":1795468055267}', '{"timestamp":1795468055268}', '{"cloud":0,"edge":1}',
            '{"cloud":0,"edge":2}', 1, 'int', '{}');
        INSERT INTO device_twin VALUES (2, 'default/dev1', 'gone', '', NULL, NULL, NULL, NULL,
            '{"cloud":0,"edge":2}', '', 1, 'deleted', '{}');
        INSERT INTO device_twin VALUES (3, 'default/dev1', 'twice', '', '', '1', '', '', '',
            '{"cloud":0,"edge":1}', 1, 'string', '{}');
        INSERT INTO device_twin VALUES (4, 'default/dev1', 'twice', '', '', '2', '', '', '',
            '{"cloud":0,"edge":1}', 1, 'string', '{}');"#;

    fn edgecore() -> Connection {
        let conn = Connection::open_in_memory().expect("memory");
        // Without our own tables.
        let theirs = SCHEMA.split("CREATE TABLE IF NOT EXISTS edged_").next().expect("a part");
        conn.execute_batch(theirs).expect(theirs);
        conn.execute_batch(EDGECORE).expect(EDGECORE);
        conn
    }

    fn stored(conn: &Connection) -> StoredDevices {
        let mut saved = Saved::default();
        read(conn, &mut saved);
        saved.devices
    }

    fn change(conn: &Connection, changes: Vec<DeviceChange>) {
        let changes: Vec<Change> = changes.into_iter().map(Change::Device).collect();
        apply(conn, &changes).expect("rows");
    }

    fn texts(conn: &Connection, sql: &str) -> Vec<String> {
        let mut statement = conn.prepare(sql).expect(sql);
        let rows = statement.query_map([], |row| row.get(0)).expect(sql);
        rows.map(|row| row.expect("text")).collect()
    }

    fn dev1() -> DeviceId {
        DeviceId::of("default/dev1")
    }

    #[test]
    fn the_rows_of_edgecore_are_read_and_count_as_not_confirmed() {
        let StoredDevices { devices, attributes, twins, acknowledged } = stored(&edgecore());
        let state =
            DeviceState { state: "ONLINE".into(), last_online: "2026-11-23T21:00:30Z".into() };
        let dev1 = DeviceRow {
            id: dev1(),
            description: Box::default(),
            state,
            is_unsent: true,
            uid: None,
        };
        assert_eq!(devices[0], dev1);
        assert_eq!((&*devices[1].description, devices.len()), ("in the hall", 2));
        let (value, type_name) = ("acme".into(), "string".into());
        let attribute = Attribute { value, optional: true, type_name };
        let (device, name) = (devices[0].id.clone(), "maker".into());
        assert_eq!(attributes, [AttributeRow { device, name, attribute }]);
        let names: Vec<&str> = twins.iter().map(|row| &*row.property).collect();
        assert_eq!(names, ["gone", "temp", "twice"]);
        let side = |value: &str, timestamp_ms, edge| {
            let version = TwinVersion { cloud: 0, edge };
            let value = (!value.is_empty()).then(|| value.into());
            Some(TwinSide { value, timestamp_ms, version })
        };
        let temp = Twin {
            expected: side("20", 1_795_468_055_267, 1),
            actual: side("19", 1_795_468_055_268, 2),
            optional: true,
            type_name: "int".into(),
        };
        assert_eq!(twins[1].twin, temp);
        assert!(twins[1].is_unsent && twins[1].desired.is_none());
        assert!(twins[0].twin.is_deleted());
        assert_eq!((&twins[0].twin.expected, &twins[0].twin.actual), (&side("", 0, 2), &None));
        assert_eq!(twins[2].twin.actual, side("2", 0, 1), "the last one wins");
        assert!(acknowledged.is_empty());
    }

    #[test]
    fn rows_are_written_as_edgecore_writes_them_and_read_again() {
        let conn = edgecore();
        let mut row = stored(&conn).twins.remove(1);
        row.twin.actual.as_mut().expect("it has one").value = Some("21".into());
        (row.is_unsent, row.desired) = (false, Some("20".into()));
        let mut device = stored(&conn).devices.remove(0);
        (device.is_unsent, device.uid) = (false, Some("u-1".into()));
        let added =
            TwinRow { property: "new".into(), is_unsent: true, is_doubtful: true, ..row.clone() };
        let acknowledged = Acknowledged {
            mapper: "m1".into(),
            object: "device/default/dev1".into(),
            digest: u64::MAX - 1,
        };
        change(
            &conn,
            vec![
                DeviceChange::PutDevice(device.clone()),
                DeviceChange::PutTwin(Box::new(row.clone())),
                DeviceChange::PutTwin(Box::new(added.clone())),
                DeviceChange::PutAcknowledged(acknowledged.clone()),
            ],
        );
        let temp = "SELECT expected || ' ' || actual || ' ' || expected_meta || actual_meta || \
                    expected_version || actual_version || ' ' || optional || attr_type || \
                    metadata || description FROM device_twin WHERE name = 'temp'";
        assert_eq!(
            texts(&conn, temp),
            ["20 21 {\"timestamp\":1795468055267}{\"timestamp\":1795468055268}\
              {\"cloud\":0,\"edge\":1}{\"cloud\":0,\"edge\":2} 1int{}"]
        );
        let got = stored(&conn);
        assert_eq!(got.devices[0], device);
        assert!(got.twins.contains(&row) && got.twins.contains(&added));
        assert_eq!(got.acknowledged, [acknowledged]);
        let (value, type_name) = ("2".into(), "int".into());
        let line = Attribute { value, optional: false, type_name };
        let attributes = [("line".into(), line.clone())].into();
        change(&conn, vec![DeviceChange::PutAttributes(dev1(), attributes)]);
        let row = "SELECT deviceid || ' ' || name || ' ' || value || optional || attr_type || \
                   metadata || description FROM device_attr";
        assert_eq!(texts(&conn, row), ["default/dev1 line 20int{}"]);
        let (device, name) = (dev1(), "line".into());
        assert_eq!(stored(&conn).attributes, [AttributeRow { device, name, attribute: line }]);
        let gone = DeviceChange::RemoveAcknowledged("m1".into(), "device/default/dev1".into());
        change(&conn, vec![DeviceChange::RemoveDevice(dev1()), gone]);
        let got = stored(&conn);
        assert_eq!((got.devices.len(), got.twins.len(), got.acknowledged.len()), (1, 0, 0));
        assert!(texts(&conn, "SELECT name FROM device_attr").is_empty());
        for table in ["edged_device", "edged_twin"] {
            assert!(texts(&conn, &format!("SELECT deviceid FROM {table}")).is_empty(), "{table}");
        }
    }

    #[test]
    fn more_rows_than_are_kept_are_left_out() {
        let conn = edgecore();
        conn.execute_batch(&format!(
            "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n
             WHERE i <= {TWINS_MAX})
             INSERT INTO device_twin SELECT 1000 + i, 'default/dev1', 'p' || i, '', '', '1', '',
             '', '', '{{}}', 1, 'string', '{{}}' FROM n;
             WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n
             WHERE i <= {NODE_DEVICES_MAX})
             INSERT INTO device SELECT 'd' || i, '', '', '', '' FROM n;
             WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n
             WHERE i <= {ATTRIBUTES_MAX})
             INSERT INTO device_attr SELECT 10 + i, 'dev9', 'a' || i, '', '1', 1, 'int', '{{}}'
             FROM n;"
        ))
        .expect("rows");
        let got = stored(&conn);
        assert_eq!(got.attributes.len(), ATTRIBUTES_MAX);
        assert_eq!(got.devices.len(), NODE_DEVICES_MAX);
        // Two of them have one name.
        assert_eq!(got.twins.len(), TWINS_MAX - 1);
    }

    #[test]
    fn rows_that_no_device_can_have_are_left_out() {
        let conn = edgecore();
        let long = "x".repeat(TWIN_VALUE_BYTES_MAX + 1);
        let name = "n".repeat(TWIN_NAME_BYTES_MAX + 1);
        conn.execute_batch(&format!(
            "UPDATE device_twin SET actual = '{long}' WHERE name = 'temp';
             UPDATE device_twin SET name = '{name}' WHERE name = 'gone';
             UPDATE device_twin SET actual = x'00', actual_version = 5 WHERE name = 'twice';
             UPDATE device SET id = '' WHERE id = 'dev9';"
        ))
        .expect("rows");
        let got = stored(&conn);
        assert_eq!((got.devices.len(), got.twins.len()), (1, 0));
        conn.execute_batch("DROP TABLE device_twin; CREATE TABLE device_twin (a);").expect("one");
        assert_eq!(stored(&conn).devices.len(), 1, "a table of another kind is left alone");
    }
}
