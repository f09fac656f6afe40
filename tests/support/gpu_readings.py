"""Outputs of ``nvidia-smi -q -x`` and of ``dmesg`` as drivers write them, with what health does not read left out: the
elements and words are those of recorded outputs of drivers 470 to 595; serial numbers are made up."""

from __future__ import annotations

_HEAD = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v{version}.dtd">
<nvidia_smi_log>
	<timestamp>Fri Aug  4 11:44:30 2023</timestamp>
	<driver_version>{driver}</driver_version>
	<attached_gpus>{count}</attached_gpus>
"""

# Driver 515 on a T4: reasons to throttle, and no rows to remap.
T4 = (
    _HEAD.format(version=11, driver="515.105.01", count=1)
    + """\
    <gpu id="00000000:00:1E.0">
        <product_name>Tesla T4</product_name>
        <mig_devices>
            None
        </mig_devices>
        <uuid>GPU-d37e67a5-0000-0000-0000-000000000001</uuid>
        <clocks_throttle_reasons>
            <clocks_throttle_reason_gpu_idle>Not Active</clocks_throttle_reason_gpu_idle>
            <clocks_throttle_reason_sw_power_cap>Not Active</clocks_throttle_reason_sw_power_cap>
            <clocks_throttle_reason_hw_slowdown>Not Active</clocks_throttle_reason_hw_slowdown>
            <clocks_throttle_reason_hw_thermal_slowdown>Not Active</clocks_throttle_reason_hw_thermal_slowdown>
            <clocks_throttle_reason_sw_thermal_slowdown>Not Active</clocks_throttle_reason_sw_thermal_slowdown>
        </clocks_throttle_reasons>
        <ecc_mode>
            <current_ecc>Enabled</current_ecc>
            <pending_ecc>Enabled</pending_ecc>
        </ecc_mode>
        <ecc_errors>
            <volatile>
                <sram_correctable>0</sram_correctable>
                <sram_uncorrectable>0</sram_uncorrectable>
                <dram_correctable>0</dram_correctable>
                <dram_uncorrectable>0</dram_uncorrectable>
            </volatile>
            <aggregate>
                <sram_correctable>0</sram_correctable>
                <sram_uncorrectable>0</sram_uncorrectable>
                <dram_correctable>3</dram_correctable>
                <dram_uncorrectable>2</dram_uncorrectable>
            </aggregate>
        </ecc_errors>
        <remapped_rows>N/A</remapped_rows>
    </gpu>

</nvidia_smi_log>
"""
)

# Driver 535 on an A100 that is cut into MIG devices, which count errors of their own.
A100 = (
    _HEAD.format(version=12, driver="535.54.03", count=1)
    + """\
    <gpu id="00000000:01:00.0">
        <product_name>NVIDIA A100-SXM4-80GB</product_name>
        <mig_devices>
            <mig_device>
                <index>0</index>
                <ecc_error_count>
                    <volatile_count>
                        <sram_uncorrectable>0</sram_uncorrectable>
                    </volatile_count>
                </ecc_error_count>
            </mig_device>
        </mig_devices>
        <uuid>GPU-513536b6-0000-0000-0000-000000000002</uuid>
        <gpu_reset_status>
            <reset_required>No</reset_required>
            <drain_and_reset_recommended>No</drain_and_reset_recommended>
        </gpu_reset_status>
        <clocks_event_reasons>
            <clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
            <clocks_event_reason_sw_power_cap>Not Active</clocks_event_reason_sw_power_cap>
            <clocks_event_reason_hw_slowdown>Not Active</clocks_event_reason_hw_slowdown>
            <clocks_event_reason_hw_thermal_slowdown>Not Active</clocks_event_reason_hw_thermal_slowdown>
            <clocks_event_reason_sw_thermal_slowdown>Not Active</clocks_event_reason_sw_thermal_slowdown>
        </clocks_event_reasons>
        <ecc_errors>
            <volatile>
                <sram_correctable>0</sram_correctable>
                <sram_uncorrectable>0</sram_uncorrectable>
                <dram_correctable>0</dram_correctable>
                <dram_uncorrectable>0</dram_uncorrectable>
            </volatile>
        </ecc_errors>
        <remapped_rows>
            <remapped_row_corr>0</remapped_row_corr>
            <remapped_row_unc>0</remapped_row_unc>
            <remapped_row_pending>No</remapped_row_pending>
            <remapped_row_failure>No</remapped_row_failure>
        </remapped_rows>
    </gpu>
</nvidia_smi_log>
"""
)

# Driver 595: errors by the code that found them, a word for what to do, ECC off.
ADA = (
    _HEAD.format(version=13, driver="595.84", count=1)
    + """\
	<gpu id="00000000:06:00.0">
		<product_name>NVIDIA RTX 4000 SFF Ada Generation</product_name>
		<mig_devices>
			None
		</mig_devices>
		<uuid>GPU-37037c3f-0000-0000-0000-000000000003</uuid>
		<gpu_recovery_action>None</gpu_recovery_action>
		<clocks_event_reasons>
			<clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
			<clocks_event_reason_hw_slowdown>Not Active</clocks_event_reason_hw_slowdown>
			<clocks_event_reason_hw_thermal_slowdown>Not Active</clocks_event_reason_hw_thermal_slowdown>
			<clocks_event_reason_sw_thermal_slowdown>Not Active</clocks_event_reason_sw_thermal_slowdown>
		</clocks_event_reasons>
		<clocks_event_reasons_counters>
			<clocks_event_reasons_counters_sw_therm_slowdown>0 us</clocks_event_reasons_counters_sw_therm_slowdown>
		</clocks_event_reasons_counters>
		<ecc_errors>
			<volatile>
				<sram_correctable>N/A</sram_correctable>
				<sram_uncorrectable_parity>N/A</sram_uncorrectable_parity>
				<sram_uncorrectable_secded>N/A</sram_uncorrectable_secded>
				<dram_correctable>N/A</dram_correctable>
				<dram_uncorrectable>N/A</dram_uncorrectable>
			</volatile>
		</ecc_errors>
		<remapped_rows>
			<remapped_row_pending>No</remapped_row_pending>
			<remapped_row_failure>No</remapped_row_failure>
		</remapped_rows>
	</gpu>
</nvidia_smi_log>
"""
)

# Drivers before 4xx, by their manual: counts by bits.
K80 = (
    _HEAD.format(version=10, driver="418.226.00", count=1)
    + """\
	<gpu id="00000000:04:00.0">
		<product_name>Tesla K80</product_name>
		<uuid>GPU-0be7a1d2-0000-0000-0000-000000000004</uuid>
		<ecc_errors>
			<volatile>
				<single_bit>
					<device_memory>7</device_memory>
					<total>7</total>
				</single_bit>
				<double_bit>
					<device_memory>2</device_memory>
					<register_file>0</register_file>
					<total>2</total>
				</double_bit>
			</volatile>
		</ecc_errors>
	</gpu>
</nvidia_smi_log>
"""
)

LOST = (
    "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU\n"
)

KERNEL_LOG = """\
[    3.141593] nvidia 0000:01:00.0: enabling device (0000 -> 0003)
[   12.004211] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023
[ 1399.140318] NVRM: GPU at PCI:0000:01:00: GPU-34d7319c-0000-0000-0000-000000000005
[ 1399.140323] NVRM: Xid (PCI:0000:01:00): 31, pid=79749, name=exe, Ch 0000000a, intr 00000000. MMU Fault: ENGINE CE0
[ 2210.004417] NVRM: Xid (PCI:0000:3b:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE)
[ 2210.004421] NVRM: Xid (PCI:0000:3b:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE)
[ 9001.000001] NVRM: Xid (PCI:0000:86:00): 79, pid=1122, GPU has fallen off the bus.
[ 9001.000009] NVRM: GPU 0000:86:00.0: GPU has fallen off the bus.
[ 9104.550012] NVRM: Xid (PCI:0000:86:00): 45, pid=4411, name=python3, Ch 00000008
[ 9200.000100] NVRM: Xid (0000:af:00): 74, NVLink: fatal error detected on link 3
[ 9300.000100] nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 11001, Fatal, ingress invalid command
"""
