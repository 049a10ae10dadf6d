//! From the device's statuses to the canonical ones.
//!
//! The table is unambiguous only because everything local is checked before it is posted.

use fabric_core::Status;

use crate::ffi::ibv_wc_status as wc;

/// How an operation of the send queue ended; `send` separates a send from a write, read or atomic.
pub(crate) fn of_send(status: wc::Type, send: bool) -> Status {
    match status {
        wc::IBV_WC_SUCCESS => Status::Ok,
        // Hardware says REM_INV_REQ to a send that is too long, RXE says REM_OP.
        wc::IBV_WC_REM_INV_REQ_ERR | wc::IBV_WC_REM_OP_ERR if send => Status::TooLong,
        wc::IBV_WC_REM_INV_REQ_ERR | wc::IBV_WC_REM_OP_ERR | wc::IBV_WC_REM_ACCESS_ERR if !send => {
            Status::RemoteAccess
        }
        wc::IBV_WC_RETRY_EXC_ERR | wc::IBV_WC_RNR_RETRY_EXC_ERR => Status::PeerLost,
        wc::IBV_WC_WR_FLUSH_ERR => Status::Canceled,
        _ => Status::Internal,
    }
}

/// How a receive ended.
pub(crate) fn of_recv(status: wc::Type) -> Status {
    match status {
        wc::IBV_WC_SUCCESS => Status::Ok,
        // Hardware says LOC_LEN to a message that is too long, RXE says LOC_QP_OP.
        wc::IBV_WC_LOC_LEN_ERR | wc::IBV_WC_LOC_QP_OP_ERR => Status::TooLong,
        _ => Status::Canceled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_and_soft_roce_mean_the_same() {
        for status in [wc::IBV_WC_REM_INV_REQ_ERR, wc::IBV_WC_REM_OP_ERR] {
            assert_eq!(of_send(status, true), Status::TooLong);
            assert_eq!(of_send(status, false), Status::RemoteAccess);
        }
        for status in [wc::IBV_WC_LOC_LEN_ERR, wc::IBV_WC_LOC_QP_OP_ERR] {
            assert_eq!(of_recv(status), Status::TooLong);
            assert_eq!(of_send(status, true), Status::Internal);
        }
        assert_eq!(of_send(wc::IBV_WC_REM_ACCESS_ERR, true), Status::Internal);
        assert_eq!(of_send(wc::IBV_WC_REM_ACCESS_ERR, false), Status::RemoteAccess);
        assert_eq!(of_recv(wc::IBV_WC_REM_ACCESS_ERR), Status::Canceled);
        for send in [true, false] {
            assert_eq!(of_send(wc::IBV_WC_WR_FLUSH_ERR, send), Status::Canceled);
            assert_eq!(of_send(wc::IBV_WC_RETRY_EXC_ERR, send), Status::PeerLost);
            assert_eq!(of_send(wc::IBV_WC_RNR_RETRY_EXC_ERR, send), Status::PeerLost);
            assert_eq!(of_send(wc::IBV_WC_LOC_PROT_ERR, send), Status::Internal);
        }
    }
}
