"""List the words that FOCUS allows in its columns, and ours. Sources: FOCUS 1.4, ISO 4217 (codes in use)."""

from __future__ import annotations

from enum import StrEnum

from router.ledger.entry import LedgerEntryKind, MachineUse

CHARGE_CATEGORIES = frozenset({"Usage", "Purchase", "Tax", "Credit", "Adjustment"})
# The ChargeCategory of an entry of the ledger. A planned one is no charge.
CATEGORY_OF_ENTRY = {
    LedgerEntryKind.METERED: "Usage",
    LedgerEntryKind.FEE: "Purchase",
    LedgerEntryKind.CREDIT: "Credit",
    LedgerEntryKind.TAX: "Tax",
    LedgerEntryKind.ADJUSTMENT: "Adjustment",
}
CHARGE_CLASSES = frozenset({"Correction"})
CHARGE_FREQUENCIES = frozenset({"One-Time", "Recurring", "Usage-Based"})
PRICING_CATEGORIES = frozenset({"Standard", "Dynamic", "Committed", "Other"})
COMMITMENT_CATEGORIES = frozenset({"Spend", "Usage"})
STATUSES = frozenset({"Used", "Unused"})


class RecordState(StrEnum):
    """The finality of an amount (x_RecordState): metered by us, on a bill that may still be restated, invoiced."""

    ESTIMATED = "Estimated"
    PROVISIONAL = "Provisional"
    INVOICED = "Invoiced"


RECORD_STATES = frozenset(state.value for state in RecordState)
WASTE_KINDS = frozenset(use.value for use in MachineUse if use.is_waste)

# Each subcategory of a service belongs to one category.
_SUBCATEGORIES: dict[str, tuple[str, ...]] = {
    "AI and Machine Learning": (
        "AI Platforms", "Bots", "Generative AI", "Machine Learning", "Natural Language Processing",
        "Other (AI and Machine Learning)",
    ),
    "Analytics": (
        "Analytics Platforms", "Business Intelligence", "Data Processing", "Other (Analytics)", "Search",
        "Streaming Analytics",
    ),
    "Business Applications": ("Other (Business Applications)", "Productivity and Collaboration"),
    "Compute": (
        "Containers", "End User Computing", "Other (Compute)", "Quantum Compute", "Serverless Compute",
        "Virtual Machines",
    ),
    "Databases": (
        "Caching", "Data Warehouses", "Ledger Databases", "NoSQL Databases", "Other (Databases)",
        "Relational Databases", "Time Series Databases",
    ),
    "Developer Tools": (
        "Continuous Integration and Deployment", "Developer Platforms", "Development Environments",
        "Other (Developer Tools)", "Quality Assurance", "Source Code Management",
    ),
    "Multicloud": ("Multicloud Integration", "Other (Multicloud)"),
    "Identity": ("Identity and Access Management", "Other (Identity)"),
    "Integration": ("API Management", "Messaging", "Other (Integration)", "Workflow Orchestration"),
    "Internet of Things": ("IoT Analytics", "IoT Platforms", "Other (Internet of Things)"),
    "Management and Governance": (
        "Architecture", "Compliance", "Cost Management", "Data Governance", "Disaster Recovery",
        "Endpoint Management", "Observability", "Other (Management and Governance)", "Support",
    ),
    "Media": ("Content Creation", "Gaming", "Media Streaming", "Mixed Reality", "Other (Media)"),
    "Migration": ("Data Migration", "Other (Migration)", "Resource Migration"),
    "Mobile": ("Other (Mobile)",),
    "Networking": (
        "Application Networking", "Content Delivery", "Network Connectivity", "Network Infrastructure",
        "Network Routing", "Network Security", "Other (Networking)",
    ),
    "Security": (
        "Other (Security)", "Secret Management", "Security Posture Management", "Threat Detection and Response",
    ),
    "Storage": (
        "Backup Storage", "Block Storage", "File Storage", "Object Storage", "Other (Storage)", "Storage Platforms",
    ),
    "Web": ("Application Platforms", "Other (Web)"),
    "Other": ("Other (Other)",),
}  # fmt: skip

SERVICE_CATEGORIES = frozenset(_SUBCATEGORIES)
CATEGORY_OF: dict[str, str] = {name: category for category, names in _SUBCATEGORIES.items() for name in names}
SUBCATEGORIES = frozenset(CATEGORY_OF)

# Keys that SkuPriceDetails may have without x_ before the name.
SKU_DETAILS = frozenset(
    {
        "CoreCount",
        "DiskMaxIops",
        "DiskSpace",
        "DiskType",
        "GpuCount",
        "InstanceType",
        "InstanceSeries",
        "MemorySize",
        "NetworkMaxIops",
        "NetworkMaxThroughput",
        "OperatingSystem",
        "Redundancy",
        "StorageClass",
    }
)
ALLOCATION_DETAILS = frozenset({"AllocatedRatio", "UsageUnit", "UsageQuantity"})

_CURRENCIES = """
    AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BOV BRL BSD BTN BWP BYN BZD
    CAD CDF CHE CHF CHW CLF CLP CNY COP COU CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL
    GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD
    KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO
    NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD
    SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD USN UYI UYU UYW UZS VED VES VND VUV
    WST XAF XAG XAU XBA XBB XBC XBD XCD XCG XDR XOF XPD XPF XPT XSU XTS XUA XXX YER ZAR ZMW ZWG
"""
CURRENCIES = frozenset(_CURRENCIES.split())
