//! A row of the store that trips an assertion at each start.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Command;

use edged::limits::START_CRASHES_MAX;
use rusqlite::Connection;

use crate::alone::{Agent, Place, listen};

/// An agent with a cloud, which is not there, and with this row in its store.
fn edged(place: &Place, key: &str) -> Command {
    let mut edged = place.edged("root", "c.sock", "c");
    let config = place.path("root-c.yaml");
    let text = fs::read_to_string(&config).expect("it was written");
    let text = text
        .replace("modules: {", "modules: {edgeHub: {httpServer: 'https://127.0.0.1:1'}, ")
        + &format!("database: {{dataSource: {}}}\n", place.path("edgecore.db").display());
    fs::write(&config, text).expect("a file for the test");
    edged.env("EDGED_TEST_FAILS_ON", key);
    edged
}

/// The agent is started; its log until a line has this.
fn log_until(edged: &mut Command, end: &str) -> (Agent, Vec<String>) {
    let mut agent = Agent(edged.spawn().expect("it starts"));
    let stderr = agent.0.stderr.take().expect("it is piped");
    let mut log = Vec::new();
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        let is_last = line.contains(end);
        log.push(line);
        if is_last {
            return (agent, log);
        }
    }
    panic!("no {end:?} in {log:#?}");
}

#[test]
fn a_row_that_trips_an_assertion_stops_three_starts_and_not_a_fourth() {
    let key = "ns/pod/p";
    let place = Place::new("crashes");
    let _socket = listen(&place.path("c.sock"));
    drop(log_until(&mut edged(&place, key), "store: new"));
    let store = place.path("edgecore.db");
    let conn = Connection::open(&store).expect("it is free");
    let sql = "INSERT INTO meta (key, type, value) VALUES (?1, 'pod', '{}')";
    conn.execute(sql, [key]).expect("the table is there");
    conn.close().expect("it is ours");
    for _ in 0..START_CRASHES_MAX {
        let done = edged(&place, key).output().expect("it starts");
        let log = String::from_utf8_lossy(&done.stderr);
        assert!(log.contains("ns/pod/p is stored") && !done.status.success(), "{log}");
        assert!(!log.contains("moved aside"), "{log}");
    }
    let (_agent, log) = log_until(&mut edged(&place, key), "the stored objects are lost");
    let aside = format!("it is now {}.corrupt-1", store.display());
    assert!(log.last().expect("a line").contains(&aside), "{log:#?}");
    let conn = Connection::open(place.path("edgecore.db.corrupt-1")).expect("it is there");
    let count: i64 = conn
        .query_row("SELECT count(*) FROM meta WHERE key = ?1", [key], |row| row.get(0))
        .expect("the table is there");
    assert_eq!(count, 1, "nothing is lost");
}
