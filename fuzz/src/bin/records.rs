//! `scripts/fuzz 60 records`: of records that were changed nothing is received that was not sent.
#![no_main]

use fabric_util::fuzzing::{records, records_seeds};

fuzz::target!(records, records_seeds, ["fabric-util/src/stream/tls"]);
